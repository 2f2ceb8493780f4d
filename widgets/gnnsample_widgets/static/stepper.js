// One recorded run of a mechanism: buttons and a slider choose the step, and code, lanes and memory show it. All steps are
// on the page, so stepping asks nobody; the kernel only learns where the learner stands, and is asked for another run when
// a line is broken.

/** The plain model that holds what changes (see store.py). */
const storeOf = (model) => model.widget_manager.get_model(model.get("store").slice("IPY_MODEL_".length));

function element(tag, props = {}, ...children) {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
}

/** The notebook, in command mode, would take keys for itself; it looks at the focused element first. */
function control(tag, props, ...children) {
  const node = element(tag, props, ...children);
  node.dataset.lmSuppressShortcuts = "true";
  return node;
}

const KINDS = { load: "read", store: "written", atomic: "updated by atomics" };

function plural(count, one, many = `${one}s`) { return `${count} ${count === 1 ? one : many}`; }

async function render({ model, el }) {
  const store = await storeOf(model);
  const id = `gs-stepper-${Math.random().toString(36).slice(2)}`;
  let run = null;
  let at = 0;

  // -- what stands on the page for good --
  const title = element("div", { className: "gs-step-title" });
  const about = element("div", { className: "gs-step-about" });
  const select = control("select", { id: `${id}-break`, name: "broken" });
  const broken = element("div", { className: "gs-step-break" }, element("label", { htmlFor: select.id, textContent: "Break a line" }), select);
  const button = (text, label, move) => {
    const node = control("button", { type: "button", className: "gs-step-button", textContent: text, title: label });
    node.setAttribute("aria-label", label);
    node.addEventListener("click", () => go(move()));
    return node;
  };
  const first = button("|◀", "To the beginning", () => 0);
  const back = button("◀ Back", "One line back", () => at - 1);
  const next = button("Forward ▶", "One line forward", () => at + 1);
  const last = button("▶|", "To the failure, or to the end", () => (run.fail && at <= run.fail.step ? run.fail.step + 1 : run.steps.length));
  const slider = control("input", { type: "range", id: `${id}-at`, name: "at", min: 0, step: 1 });
  slider.setAttribute("aria-label", "Lines that have run");
  const place = element("output", { className: "gs-step-place" });
  place.setAttribute("for", slider.id);
  const bar = element("div", { className: "gs-step-bar" }, first, back, next, last, slider, place);
  const verdict = element("div", { className: "gs-step-verdict" });
  verdict.setAttribute("role", "status");
  const code = control("div", { className: "gs-step-code", tabIndex: 0 });
  code.setAttribute("role", "region");
  code.setAttribute("aria-label", "Lines of the kernel");
  const who = element("div", { className: "gs-step-who" });
  const lanes = element("div", { className: "gs-step-lanes" });
  const said = element("div", { className: "gs-step-said" });
  const memory = element("div", { className: "gs-step-memory" });
  const key = element("div", { className: "gs-step-key" });
  for (const [kind, text] of Object.entries(KINDS)) key.append(element("span", { className: `gs-step-swatch gs-${kind}` }), `${text}  `);
  key.append("· a box is a sector of 32 bytes");
  const root = element("div", { className: "gnnsample-stepper" },
    element("div", { className: "gs-step-head" }, element("div", {}, title, about), broken), bar, verdict,
    element("div", { className: "gs-step-columns" }, code, element("div", { className: "gs-step-right" }, who, lanes)),
    said, memory, key);
  root.dataset.mechanism = "";

  // -- a run: its lines, its registers and its cells, made once --
  let rows = [];
  let boxes = new Map();
  let sectors = new Map();
  let grids = [];

  function lay() {
    title.textContent = `Step through: ${run.mechanism}`;
    about.textContent = run.about;
    root.dataset.mechanism = run.mechanism;
    select.replaceChildren(...run.options.map((text) => element("option", { value: text, textContent: text })));
    slider.max = run.steps.length;
    rows = [];
    code.replaceChildren();
    for (const { file, lines } of run.files) {
      code.append(element("div", { className: "gs-step-file", textContent: file.split("/").pop(), title: file }));
      const least = Math.min(...lines.map(([, , depth]) => depth));
      let before = null;
      for (const [number, text, depth] of lines) {
        if (before !== null && number > before + 1) code.append(element("div", { className: "gs-step-gap", textContent: "⋯" }));
        before = number;
        const words = element("span", { className: "gs-step-text", textContent: text });
        words.style.paddingLeft = `${Math.min(depth - least, 4) + 1}em`;
        const row = element("div", { className: "gs-step-line" }, element("span", { className: "gs-step-number", textContent: number }), words);
        if (run.broken && text === run.broken.line) {
          row.classList.add("gs-step-broken");
          words.replaceChildren(element("del", { textContent: text }), element("br"), element("ins", { textContent: run.broken.instead }));
        }
        rows.push(row);
        code.append(row);
      }
    }
    grids = run.registers.map((name, n) => {
      const cells = Array.from({ length: 32 }, (_, lane) => element("span", { className: "gs-step-lane", title: `lane ${lane}` }));
      const longest = Math.max(1, ...run.steps.flatMap((step) => step.r[n].map((text) => (text ?? "").length)));
      const grid = element("div", { className: `gs-step-grid${longest > 3 ? " gs-step-long" : ""}` }, ...cells);
      return { cells, grid, name };
    });
    lanes.replaceChildren(...grids.map(({ name, grid }) => element("div", {}, element("div", { className: "gs-step-name", textContent: name }), grid)));
    boxes = new Map();
    sectors = new Map();
    memory.replaceChildren(...run.arrays.map((array) => {
      const mine = new Map();
      const groups = [];
      const texts = Object.values(array.first).concat(run.steps.flatMap((step) => step.c.filter(([name]) => name === array.name).map(([, , text]) => text)));
      const width = Math.max(2, ...texts.map((text) => text.length));
      const strip = array.sectors.map((cells) => {
        const box = element("span", { className: "gs-step-sector" });
        box.title = `${array.name}[${cells[0]} … ${cells[cells.length - 1]}]`;
        if (!array.fixed) for (const cell of cells) {
          const node = element("span", { className: "gs-step-cell", title: `${array.name}[${cell}]` });
          node.style.minWidth = `${width}ch`;
          mine.set(cell, node);
          box.append(node);
        }
        groups.push([cells, box]);
        return box;
      });
      boxes.set(array.name, mine);
      sectors.set(array.name, groups);
      const words = array.shared ? "shared memory" : array.fixed ? `only read, ${array.bytes} bytes each` : `${array.bytes} bytes each`;
      const long = array.sectors.flat().length * width > 120;
      return element("div", { className: `gs-step-array${array.fixed ? " gs-step-fixed" : ""}${array.shared ? " gs-step-shared" : ""}${long ? " gs-step-lines" : ""}` },
        element("div", { className: "gs-step-name" }, element("b", { textContent: array.name }), ` ${words}`), element("div", { className: "gs-step-strip" }, ...strip));
    }));
  }

  // -- a step --
  function paint() {
    const step = at ? run.steps[at - 1] : null;
    root.dataset.at = at;
    root.dataset.steps = run.steps.length;
    slider.value = at;
    slider.setAttribute("aria-valuetext", `${at} of ${run.steps.length} lines have run`);
    place.textContent = `${at} of ${run.steps.length}`;
    first.disabled = back.disabled = at === 0;
    next.disabled = last.disabled = at === run.steps.length;
    const failed = run.fail && at > run.fail.step;
    verdict.className = `gs-step-verdict${failed ? " gs-step-failed" : ""}`;
    verdict.replaceChildren(...(failed
      ? [element("b", { textContent: `${run.fail.invariant} – no longer.` }), ` ${run.fail.what}. ${run.fail.orders}`]
      : [at === run.steps.length && !run.fail ? run.end : run.hint]));
    rows.forEach((row, n) => row.classList.toggle("gs-step-now", step !== null && n === step.l));
    if (step && step.l >= 0) {
      const row = rows[step.l];
      // Inside the panel only: the page must not move under the learner.
      if (row.offsetTop < code.scrollTop + 20 || row.offsetTop + row.offsetHeight > code.scrollTop + code.clientHeight - 20) code.scrollTop = row.offsetTop - code.clientHeight / 2;
    } else if (!step) code.scrollTop = 0;
    const warps = new Set(run.steps.map((each) => each.w)).size;
    const active = step ? Array.from({ length: 32 }, (_, lane) => (step.a >>> lane) & 1) : Array(32).fill(0);
    who.replaceChildren(element("b", { textContent: step ? (warps > 1 ? `Warp ${step.w}` : "The warp") : "Before the first line" }),
      step ? `${warps > 1 ? `, of warps 0 to ${warps - 1}` : ""} · ${active.reduce((sum, bit) => sum + bit, 0)} of 32 lanes${step.n ? ` · ${step.n}` : ""}` : " · 32 lanes, no value yet");
    const before = step ? run.steps.slice(0, at - 1).findLast((each) => each.w === step.w) : null;
    grids.forEach(({ cells }, n) => cells.forEach((cell, lane) => {
      const value = step ? step.r[n][lane] : null;
      cell.textContent = value ?? "·";
      cell.className = `gs-step-lane${active[lane] ? " gs-active" : ""}${step && value !== (before ? before.r[n][lane] : null) ? " gs-new" : ""}`;
    }));
    const values = new Map(run.arrays.map((array) => [array.name, { ...array.first }]));
    for (const each of run.steps.slice(0, at)) for (const [name, cell, text] of each.c) values.get(name)[cell] = text;
    const changed = new Set((step ? step.c : []).map(([name, cell]) => `${name} ${cell}`));
    for (const array of run.arrays) {
      const touched = new Map();
      const met = new Set();
      for (const [kind, name, , cells] of step ? step.m : []) if (name === array.name) for (const cell of cells) { touched.set(cell, kind); met.add(cell); }
      for (const [cells, box] of sectors.get(array.name)) {
        const kind = cells.map((cell) => touched.get(cell)).find(Boolean);
        box.className = `gs-step-sector${kind ? ` gs-${kind}` : ""}`;
      }
      for (const [cell, node] of boxes.get(array.name)) {
        node.textContent = values.get(array.name)[cell];
        node.className = `gs-step-cell${met.has(cell) ? " gs-met" : ""}${changed.has(`${array.name} ${cell}`) ? " gs-new" : ""}`;
      }
    }
    const sums = { load: 0, store: 0, atomic: 0 };
    for (const each of run.steps.slice(0, at)) for (const [kind, , , , count] of each.m) sums[kind] += count;
    const now = (step ? step.m : []).map(([kind, name, count, , touched]) =>
      `${kind} ${name}: ${plural(count, "lane")}, ${touched ? plural(touched, "sector") : "shared memory"}`);
    said.replaceChildren(element("span", { className: "gs-step-access", textContent: now.join(" · ") || "No memory in this line." }),
      element("span", { className: "gs-step-sums", textContent: `So far: ${sums.load} sectors read, ${sums.store} written, ${sums.atomic} by atomics` }));
  }

  // -- moving --
  let timer = null;
  const send = () => { timer = null; store.set("at", at); store.save_changes(); };
  function go(to) {
    at = Math.max(0, Math.min(run.steps.length, to));
    paint();
    if (timer === null) timer = setTimeout(send, 120);
  }
  slider.addEventListener("input", () => go(Number(slider.value)));
  select.addEventListener("change", () => {
    if (timer !== null) { clearTimeout(timer); timer = null; }
    store.set("choice", select.value);
    store.save_changes();
  });
  const renew = () => {
    run = JSON.parse(store.get("data"));
    at = Math.min(store.get("at"), run.steps.length);
    lay();
    select.value = store.get("choice");
    paint();
  };
  const moved = () => { if (timer === null && run && store.get("at") <= run.steps.length) { at = store.get("at"); paint(); } };
  const chosen = () => { select.value = store.get("choice"); };
  store.on("change:data", renew);
  store.on("change:at", moved);
  store.on("change:choice", chosen);
  el.append(root);
  renew();
  return () => {
    if (timer !== null) { clearTimeout(timer); send(); }
    store.off("change:data", renew);
    store.off("change:at", moved);
    store.off("change:choice", chosen);
  };
}

export default { render };
