// Draws one figure. plotly.js (5 MB) reaches the page once, compressed, through the shared "runtime" model, however many
// panels there are. The newest figure wins: figures that arrive while one is being drawn are skipped, all but the last.

const KEY = Symbol.for("gnnsample_widgets.plotly");

async function load(model) {
  const reference = model.get("runtime").slice("IPY_MODEL_".length);
  const runtime = await model.widget_manager.get_model(reference);
  const packed = new Blob([runtime.get("packed")]).stream().pipeThrough(new DecompressionStream("gzip"));
  const address = URL.createObjectURL(await new Response(packed, { headers: { "Content-Type": "text/javascript" } }).blob());
  // A script element, for browsers compile those beside the page's work. The file sets globals: the page keeps its own.
  const before = { Plotly: globalThis.Plotly, moduleName: globalThis.moduleName };
  const script = document.createElement("script");
  await new Promise((resolve, reject) => {
    script.onload = resolve;
    script.onerror = () => reject(new Error("plotly.js did not load"));
    script.src = address;
    document.head.append(script);
  });
  const loaded = globalThis.Plotly;
  for (const [name, value] of Object.entries(before)) {
    if (value === undefined) delete globalThis[name]; else globalThis[name] = value;
  }
  script.remove();
  URL.revokeObjectURL(address);
  return loaded;
}

function plotly(model) {
  const loaded = (globalThis[KEY] ??= new Map());
  const version = model.get("plotly_version");
  if (!loaded.has(version)) {
    const promise = load(model);
    promise.catch(() => loaded.delete(version));
    loaded.set(version, promise);
  }
  return loaded.get(version);
}

const TYPED = {
  f8: Float64Array, f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array,
  u4: Uint32Array, u2: Uint16Array, u1: Uint8Array, c1: Uint8ClampedArray,
};

/** Binary arrays of plotly's JSON become typed arrays (one dimension) where they stand. */
function decode(value) {
  if (Array.isArray(value)) { value.forEach((v, i) => { value[i] = decode(v); }); return value; }
  if (value === null || typeof value !== "object") return value;
  if (typeof value.bdata === "string" && value.dtype in TYPED && value.shape === undefined) {
    const bytes = Uint8Array.from(atob(value.bdata), (c) => c.charCodeAt(0));
    return new TYPED[value.dtype](bytes.buffer);
  }
  for (const key of Object.keys(value)) value[key] = decode(value[key]);
  return value;
}

/** Title and small line of a figure as plain text, to be shown above it as HTML: it wraps where a panel is narrow. */
function caption(layout) {
  const plain = (text) => {
    const holder = document.createElement("textarea"); // decodes entities, runs nothing
    holder.innerHTML = text.replace(/<br\s*\/?>/g, " ").replace(/<[^>]*>/g, "");
    return holder.value.trim();
  };
  const [title, ...rest] = (layout.title?.text ?? "").split(/<br\s*\/?>/);
  return [plain(title), plain(rest.join(" "))];
}

/** Pixels of the top margin that a figure keeps for its title, where there is one. */
const TITLE_ROOM = 84;

const luminance = (r, g, b) => 0.2126 * (r / 255) ** 2.2 + 0.7152 * (g / 255) ** 2.2 + 0.0722 * (b / 255) ** 2.2;

/** What the page looks like: whether it is dark, and its ground. */
function theme(el) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = "#ffffff";
  pen.fillStyle = getComputedStyle(el).getPropertyValue("--jp-layout-color1").trim() || "#ffffff";
  const ground = pen.fillStyle; // "#rrggbb", or "rgba(...)" where it is not opaque
  const [r, g, b] = ground.startsWith("#") ? [1, 3, 5].map((i) => parseInt(ground.slice(i, i + 2), 16)) : [255, 255, 255];
  return { dark: luminance(r, g, b) < 0.3, ground };
}

// What holds words or numbers, never a colour.
const NO_COLORS = new Set(["x", "y", "z", "text", "customdata", "hovertext", "hovertemplate", "name", "ids", "ticktext", "labels"]);

/** Colours of the light theme become those of the dark one where they stand; `table` has them by their name. */
function darken(value, table) {
  if (typeof value === "string") {
    const found = table[value.toLowerCase()];
    if (found) return found;
    const parts = /^rgba?\((\d+), *(\d+), *(\d+)(?:, *([\d.]+))?\)$/.exec(value);
    if (!parts) return value;
    const hex = "#" + parts.slice(1, 4).map((n) => Number(n).toString(16).padStart(2, "0")).join("");
    const swapped = table[hex];
    if (!swapped) return value;
    return `rgba(${[1, 3, 5].map((i) => parseInt(swapped.slice(i, i + 2), 16)).join(", ")}, ${parts[4] ?? 1})`;
  }
  if (Array.isArray(value)) { for (let i = 0; i < value.length; i++) value[i] = darken(value[i], table); return value; }
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  for (const key of Object.keys(value)) if (!NO_COLORS.has(key)) value[key] = darken(value[key], table);
  return value;
}

/** The layout for a plot of this size on this page; the title stands above it. */
function fit(layout, width, height, ground) {
  const look = layout.template?.layout ?? {};
  const margin = { ...look.margin, ...layout.margin };
  if (layout.title?.text) margin.t = Math.max(14, (margin.t ?? 100) - TITLE_ROOM);
  let legend = layout.legend;
  if (legend?.y < 0 && !legend.yref) {
    // Below the plot, at a share of a height that a panel need not have: at the foot, where plotly keeps room for it.
    legend = { ...legend, y: 0, yref: "container", yanchor: "bottom" };
    margin.b = Math.min(margin.b ?? 80, 52);
  }
  return {
    ...layout,
    template: { ...layout.template, layout: { ...look, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" } },
    paper_bgcolor: "rgba(0,0,0,0)",
    title: undefined,
    legend,
    hoverlabel: { bgcolor: ground, ...layout.hoverlabel },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "#8A93A0", activecolor: "#3787C0" },
    margin, width, height, autosize: false,
  };
}

/** The corners of a text on the screen, turned as it is. */
function cornersOf(text) {
  const b = text.getBBox();
  const m = text.getScreenCTM();
  if (!m || b.width * b.height === 0) return null;
  return [[b.x, b.y], [b.x + b.width, b.y], [b.x + b.width, b.y + b.height], [b.x, b.y + b.height]]
    .map(([x, y]) => [m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f]);
}

/** The upright box around a turned one: left, right, top, bottom. */
function aroundOf(corners) {
  const [xs, ys] = [0, 1].map((i) => corners.map((corner) => corner[i]));
  return [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
}

/** By how many pixels two turned boxes overlap, along the side where it is least; below 0 they are apart. */
function overlap(p, q) {
  let least = Infinity;
  for (const box of [p, q]) for (const i of [0, 1]) {
    const [x, y] = [box[i + 1][0] - box[i][0], box[i + 1][1] - box[i][1]];
    const n = Math.hypot(x, y) || 1;
    const [a, b] = [p, q].map((corners) => corners.map(([u, v]) => (u * x + v * y) / n));
    least = Math.min(least, Math.min(Math.max(...a), Math.max(...b)) - Math.max(Math.min(...a), Math.min(...b)));
  }
  return least;
}

const MOST_TEXTS = 500;

/**
 * Of texts that lie on each other the one that says less is hidden, as on a map: titles and legend stay, then come ticks,
 * notes, and labels of marks, which their hover labels repeat. The figures know no sizes of text; only the page does.
 */
function declutter(host) {
  const kept = [];
  const ranks = [".legendtext, .g-xtitle text, .g-ytitle text, .infolayer > [class*=title] text, .cbtitle text",
    ".xtick text, .ytick text", ".cbaxis text", ".annotation text", ".textpoint text, .bartext, .heatmap-label"];
  // All is written, then all is read, then all is written: in turns the browser would lay the page out for every text.
  const groups = ranks.map((rank) => [...host.querySelectorAll(rank)].filter((text) => text.textContent.trim()))
    .filter((texts) => texts.length <= MOST_TEXTS);
  for (const text of groups.flat()) if (text.style.visibility) text.style.visibility = "";
  const boxes = new Map(groups.flat().map((text) => [text, cornersOf(text)]));
  for (const [text, box] of boxes) {
    if (!box) continue;
    const [left, right, top, bottom] = aroundOf(box);
    // Most are far from each other, which four numbers tell.
    const hit = kept.some(([other, [l, r, t, b]]) => left < r && l < right && top < b && t < bottom && overlap(box, other) > 1.5);
    if (hit) text.style.visibility = "hidden"; else kept.push([box, [left, right, top, bottom]]);
  }
}

const CONFIG = {
  displaylogo: false, responsive: false,
  modeBarButtonsToRemove: ["lasso2d", "select2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
};

/** The plain model that holds what changes (see store.py). */
const storeOf = (model) => model.widget_manager.get_model(model.get("store").slice("IPY_MODEL_".length));

/** When the page has a moment: what is on its way to other widgets goes first. */
const idle = () => new Promise((resolve) => {
  if (globalThis.requestIdleCallback) requestIdleCallback(resolve, { timeout: 1500 }); else setTimeout(resolve, 50);
});

async function render({ model, el }) {
  const store = await storeOf(model);
  const runtime = await model.widget_manager.get_model(model.get("runtime").slice("IPY_MODEL_".length));
  const make = (name, parent) => parent.appendChild(Object.assign(document.createElement("div"), { className: name }));
  const figure = make("gs-figure", el);
  const head = make("gs-caption", figure);
  const [title, small] = [make("gs-caption-title", head), make("gs-caption-small", head)];
  const note = make("gs-unfinished", figure);
  const host = make("gs-plot", figure);
  host.dataset.name = model.get("name");
  host.dataset.busy = "0";
  host.setAttribute("role", "img");
  host.textContent = "Loading the figure …";
  const NAMES = ["data", "frame"];
  let lib = null;
  let busy = false;
  let stale = false;
  let closed = false;
  let drawn = "";
  let size = "";
  let traces = {};

  let listening = false;
  const report = ({ points: [mark] }) => {
    const clicks = (store.get("clicked").clicks ?? 0) + 1;  // a second click on the same mark is news, too
    store.set("clicked", { trace: mark.curveNumber, x: mark.x, y: mark.y, clicks });
    store.save_changes();
  };

  // What a long run has not come to yet says so; CSS waits a moment, so that nothing flickers in a short one.
  const mark = () => {
    const unfinished = store.get("unfinished");
    figure.dataset.unfinished = unfinished;
    note.textContent = { "so far": "so far …", before: "of the setting before …", opening: "opening the tab …" }[unfinished] ?? "";
  };

  const draw = async () => {
    stale = true;
    // Behind a tab nothing is drawn: the observer below tells when there is room.
    if (figure.clientWidth === 0) { host.dataset.busy = "hidden"; return; }
    host.dataset.busy = "1";
    if (busy) return;
    busy = true;
    try {
      // Traces and layout come in one message and are told of one after the other: both are one drawing, not two.
      await null;
      if (!lib) {
        await idle();
        lib = await plotly(model);
        await idle();
      }
      while (stale && !closed && figure.clientWidth > 0) {
        stale = false;
        const { dark, ground } = theme(el);
        const table = { ...runtime.get("dark"), white: ground, "#ffffff": ground };
        const read = (text) => {
          const value = decode(JSON.parse(text));
          return dark ? darken(value, table) : value;
        };
        const text = store.get("data");
        // Traces that are the same objects as before are not worked out anew: a cursor in the layout moves at once.
        if (text !== traces.text || ground !== traces.ground) traces = { text, ground, data: read(text) };
        const { data } = traces, frame = read(store.get("frame"));
        [title.textContent, small.textContent] = caption(frame);
        head.hidden = !title.textContent && !small.textContent;
        figure.style.height = `${model.get("height") || frame.height || 400}px`;
        if (!host.classList.contains("js-plotly-plot")) host.textContent = "";
        drawn = `${host.clientWidth} ${host.clientHeight} ${ground}`;
        host.setAttribute("aria-label", store.get("alt"));
        figure.style.setProperty("--gs-head", `${head.offsetHeight}px`);
        await lib.react(host, data, fit(frame, host.clientWidth, host.clientHeight, ground), CONFIG);
        const now = `${host.clientWidth} ${host.clientHeight}`;
        // Plotly leaves a legend that has become shorter where the longer one stood, on the data, until it is asked again.
        if (size && size !== now) await lib.relayout(host, { width: host.clientWidth });
        size = now;
        if (!listening) {
          host.on("plotly_click", report);
          host.on("plotly_afterplot", () => declutter(host));
          declutter(host);
        }
        listening = true;
        host.dataset.drawn = Number(host.dataset.drawn ?? 0) + 1;
      }
    } catch (error) {
      host.textContent = `This figure could not be drawn: ${error.message}`;
      console.error(error);
    } finally {
      busy = false;
      host.dataset.busy = stale ? "hidden" : "0";
    }
  };

  // Plotly measures once; a panel that becomes wider, visible or dark must be told. Not at every pixel, and not at once:
  // a figure that grows can bring a scroll bar, which makes it narrower, which makes it grow.
  let later = null;
  const again = () => {
    if (figure.clientWidth === 0) return;
    if (!stale && drawn === `${host.clientWidth} ${host.clientHeight} ${theme(el).ground}`) return;
    clearTimeout(later);
    // What was waiting behind a tab is drawn at once.
    if (stale) draw(); else { host.dataset.busy = "1"; later = setTimeout(draw, 60); }
  };
  const observer = new ResizeObserver(again);
  observer.observe(host);
  const painted = new MutationObserver(() => requestAnimationFrame(again));
  painted.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "class"] });
  NAMES.forEach((name) => store.on(`change:${name}`, draw));
  store.on("change:unfinished", mark);
  mark();
  draw();
  return () => {
    closed = true;
    clearTimeout(later);
    observer.disconnect();
    painted.disconnect();
    NAMES.forEach((name) => store.off(`change:${name}`, draw));
    store.off("change:unfinished", mark);
    if (lib) lib.purge(host);
  };
}

export default { render };
