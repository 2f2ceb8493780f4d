// Where the words and panels of one explorer lie: oriented boxes of all visible texts, whose overlap a test forbids.
(index) => {
  const root = document.querySelectorAll('.gnnsample-explorer')[index];
  root.scrollIntoView({ block: 'start' }); // scrolled controls lie on what they have passed
  const boxes = [];
  for (const text of root.querySelectorAll('text')) {
    const style = getComputedStyle(text);
    if (text.closest('.hoverlayer') || !text.textContent.trim() || !text.getClientRects().length) continue;
    if (style.visibility === 'hidden' || Number(style.opacity) === 0) continue;
    const box = text.getBBox(), m = text.getScreenCTM();
    if (!m || box.width * box.height === 0) continue;
    const at = (x, y) => [m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f];
    const [right, bottom] = [box.x + box.width, box.y + box.height];
    boxes.push({ words: text.textContent.trim(), corners: [at(box.x, box.y), at(right, box.y), at(right, bottom), at(box.x, bottom)] });
  }
  const html = '.gs-control label, .gs-control output, .gs-caption-title, .gs-caption-small, .gs-tab, .gs-title, .gs-status';
  for (const element of root.querySelectorAll(html)) {
    const range = document.createRange();
    range.selectNodeContents(element);
    const { left, right, top, bottom, width, height } = range.getBoundingClientRect();
    if (width * height === 0) continue;
    boxes.push({ words: element.textContent.trim(), corners: [[left, top], [right, top], [right, bottom], [left, bottom]] });
  }
  // The least overlap along the sides of both boxes: below zero there is a line between them.
  const depth = (p, q) => {
    let least = Infinity;
    for (const box of [p, q]) {
      for (const i of [0, 1]) {
        const [x, y] = [box[i + 1][0] - box[i][0], box[i + 1][1] - box[i][1]];
        const length = Math.hypot(x, y) || 1;
        const [a, b] = [p, q].map((corners) => corners.map(([u, v]) => (u * x + v * y) / length));
        least = Math.min(least, Math.min(Math.max(...a), Math.max(...b)) - Math.max(Math.min(...a), Math.min(...b)));
      }
    }
    return least;
  };
  const overlaps = [];
  boxes.forEach((one, i) => {
    for (const other of boxes.slice(0, i)) {
      const by = depth(one.corners, other.corners);
      if (by > 2) overlaps.push({ by, words: `${one.words.slice(0, 60)} | ${other.words.slice(0, 60)}` });
    }
  });
  // A legend has room of its own, beside the plots of its figure.
  const onPlot = [];
  for (const figure of root.querySelectorAll('.gs-plot')) {
    const plots = [...figure.querySelectorAll('.nsewdrag')].map((plot) => plot.getBoundingClientRect());
    for (const text of figure.querySelectorAll('.legendtext')) {
      const box = text.getBoundingClientRect();
      const by = (plot) => Math.min(
        Math.min(box.right, plot.right) - Math.max(box.left, plot.left),
        Math.min(box.bottom, plot.bottom) - Math.max(box.top, plot.top));
      if (box.width && plots.some((plot) => plot.width && by(plot) > 2)) onPlot.push(text.textContent);
    }
  }
  const seen = [...root.querySelectorAll('.gs-figure')].filter((figure) => figure.clientWidth > 0);
  const places = seen.map((figure) => figure.getBoundingClientRect());
  const notebook = root.closest('.jp-WindowedPanel-outer');
  // A dark page has no white grounds: neither in HTML nor behind a plot.
  const dark = document.body.dataset.jpThemeLight === 'false';
  const bright = (color) => {
    const [r, g, b, alpha = 1] = (color.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    return alpha > 0.3 && Math.min(r, g, b) > 200;
  };
  const grounds = [root, ...root.querySelectorAll('div, pre, button, select')].filter((el) => el.clientWidth > 0);
  const pale = grounds.filter((el) => bright(getComputedStyle(el).backgroundColor)).map((el) => el.className);
  for (const track of root.querySelectorAll('input[type=range]')) {
    const { colorScheme, accentColor } = getComputedStyle(track);
    // The browser gives a dark accent a white track, whatever the scheme.
    const [r, g, b] = accentColor.match(/\d+/g)?.map(Number) ?? [0, 0, 0];
    if (track.clientWidth > 0 && (colorScheme !== 'dark' || 0.3 * r + 0.6 * g + 0.1 * b < 110)) pale.push(`slider ${track.name}`);
  }
  for (const rect of root.querySelectorAll('rect.bg, .main-svg')) {
    const style = getComputedStyle(rect);
    const fill = rect.tagName === 'rect' ? style.fill : style.backgroundColor;
    if (bright(fill) && Number(style.fillOpacity) > 0.3 && rect.getBoundingClientRect().width > 40) pale.push(rect.getAttribute('class'));
  }
  const edge = notebook.getBoundingClientRect().left + notebook.clientWidth;
  return {
    beyond: Math.max(0, Math.round(root.getBoundingClientRect().right - edge)),
    overlaps: overlaps.slice(0, 8),
    onPlot,
    needs: Math.ceil(places[0].bottom - root.querySelector('.gs-controls').getBoundingClientRect().top),
    viewport: notebook.clientHeight,
    widths: places.map((place) => Math.round(place.width)),
    heights: places.map((place) => Math.round(place.height)),
    tops: places.map((place) => Math.round(place.top)),
    pale: dark ? [...new Set(pale)] : [],
  };
}
