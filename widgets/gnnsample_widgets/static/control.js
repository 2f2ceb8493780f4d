// Every control of the explorers: a labelled range, select, checkbox or list of tabs made of native elements, so that it has an
// accessible name, takes the keyboard and needs no framework. State lives in the model ("value"); this file only shows it.

/** The plain model that holds what changes (see store.py). */
const storeOf = (model) => model.widget_manager.get_model(model.get("store").slice("IPY_MODEL_".length));

/** Send `value` to the kernel at once, then at most once per `wait_ms`, always ending with the last one. */
function sender(model, store) {
  let timer = null;
  let last = -Infinity;
  let pending;
  const flush = () => {
    timer = null;
    last = performance.now();
    store.set("value", pending);
    store.save_changes();
  };
  return {
    push(value) {
      pending = value;
      if (timer === null) timer = setTimeout(flush, Math.max(0, last + model.get("wait_ms") - performance.now()));
    },
    get waiting() { return timer !== null; },
    stop() { if (timer !== null) { clearTimeout(timer); flush(); } },
  };
}

function element(tag, props = {}, ...children) {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  // Otherwise the notebook, in command mode, takes arrow keys and letters for itself. It looks at the focused element
  // before its ancestors, so every element that can have the focus carries the mark.
  node.dataset.lmSuppressShortcuts = "true";
  return node;
}

function renderRange({ model, store, root, id, send }) {
  const range = element("input", { type: "range", id, name: model.get("name") });
  const output = element("output", { className: "gs-value" });
  output.setAttribute("for", id);
  const typed = element("input", { type: "number", className: "gs-typed" });
  const head = element("div", { className: "gs-head" }, element("label", { htmlFor: id, textContent: model.get("label") }));
  head.append(model.get("typed") ? typed : output);

  const options = () => store.get("options");
  // What is shown instead of a value may lie between two options, or be no number: then it is words.
  const nearest = (value) => options().reduce((at, each, i) => (Math.abs(each - value) < Math.abs(options()[at] - value) ? i : at), 0);
  const toPosition = (value) => (typeof value !== "number" ? 0 : options().length ? nearest(value) : value);
  const toValue = (position) => (options().length ? options()[position] : position);
  const shown = (value) => typeof value !== "number" ? `${value}` : `${(value / model.get("per")).toLocaleString("en-US", { maximumSignificantDigits: 6 })}${model.get("unit")}`;

  const paint = (value) => {
    const many = options().length;
    range.min = many ? 0 : store.get("min");
    range.max = many ? many - 1 : store.get("max");
    range.step = many ? 1 : model.get("step");
    range.value = toPosition(value);
    root.dataset.value = JSON.stringify(value);
    range.setAttribute("aria-valuetext", shown(value));
    output.textContent = shown(value);
    typed.min = store.get("min");
    typed.max = store.get("max");
    typed.step = model.get("step");
    if (document.activeElement !== typed) typed.value = value;
    typed.setAttribute("aria-label", `${model.get("label")}, as a number`);
    range.disabled = typed.disabled = store.get("disabled");
    root.classList.toggle("gs-disabled", store.get("disabled"));
  };
  const change = (value) => { paint(value); send.push(value); };

  range.addEventListener("input", () => change(toValue(Number(range.value))));
  const commit = () => {
    const value = Math.round(Number(typed.value));
    if (typed.value === "" || !Number.isFinite(value)) { typed.value = store.get("value"); return; }
    const held = Math.min(store.get("max"), Math.max(store.get("min"), value));
    typed.value = held;
    if (held !== store.get("value")) change(held);
  };
  typed.addEventListener("change", commit);
  // A notebook may keep Enter from becoming a change.
  typed.addEventListener("keydown", (event) => { if (event.key === "Enter") commit(); });

  const row = element("div", { className: "gs-row" });
  let stop = () => {};
  if (model.get("playable")) {
    const button = element("button", { type: "button", className: "gs-play" });
    let timer = null;
    stop = () => { clearInterval(timer); timer = null; label(); };
    const label = () => {
      button.textContent = timer === null ? "▶" : "❚❚";
      button.setAttribute("aria-label", `${timer === null ? "Play" : "Pause"} ${model.get("label")}`);
    };
    const tick = () => {
      const position = Number(range.value);
      if (position >= Number(range.max)) { stop(); return; }
      change(toValue(Math.min(Number(range.max), position + Number(range.step))));
    };
    button.addEventListener("click", () => {
      if (timer !== null) { stop(); return; }
      if (Number(range.value) >= Number(range.max)) change(toValue(Number(range.min)));
      timer = setInterval(tick, model.get("interval_ms"));
      label();
    });
    label();
    row.append(button);
  }
  row.append(range);
  root.append(head, row);
  return { field: range, paint, stop };
}

/** Characters that a list shows in a column of the controls. */
const ROOMY = 20;

function renderSelect({ model, store, root, id, send }) {
  const select = element("select", { id, name: model.get("name") });
  const paint = (value) => {
    const options = store.get("options");
    // What is shown instead of a value need not be an option.
    select.replaceChildren(...(options.includes(value) ? options : [...options, value]).map((o) => element("option", { value: o, textContent: o })));
    select.value = value;
    // A choice of many words would be cut off where it stands.
    root.classList.toggle("gs-wide", options.some((o) => o.length > ROOMY));
    root.dataset.value = JSON.stringify(value);
    select.disabled = store.get("disabled");
  };
  select.addEventListener("change", () => { root.dataset.value = JSON.stringify(select.value); send.push(select.value); });
  root.append(
    element("div", { className: "gs-head" }, element("label", { htmlFor: id, textContent: model.get("label") })), select);
  return { field: select, paint };
}

function renderCheckbox({ model, store, root, id, send }) {
  const box = element("input", { type: "checkbox", id, name: model.get("name") });
  const paint = (value) => {
    box.checked = value;
    root.dataset.value = JSON.stringify(value);
    box.disabled = store.get("disabled");
  };
  box.addEventListener("change", () => { root.dataset.value = JSON.stringify(box.checked); send.push(box.checked); });
  root.append(element("label", { className: "gs-check", htmlFor: id }, box, ` ${model.get("label")}`));
  return { field: box, paint };
}

/** A list of tabs as the WAI-ARIA practices describe it: one of them takes the Tab key, arrows move between them. */
function renderTabs({ model, store, root, id, send }) {
  root.setAttribute("role", "tablist");
  root.setAttribute("aria-label", model.get("label"));
  const open = (title) => { paint(title); send.push(title); root.querySelector('[aria-selected="true"]')?.focus(); };
  let shown = "";
  const paint = (value) => {
    const titles = store.get("options");
    if (shown !== JSON.stringify(titles)) {
      shown = JSON.stringify(titles);
      root.replaceChildren(...titles.map((title, i) => {
        const tab = element("button", { type: "button", className: "gs-tab", id: `${id}-${i}`, textContent: title });
        tab.setAttribute("role", "tab");
        tab.addEventListener("click", () => open(title));
        tab.addEventListener("keydown", (event) => {
          const step = { ArrowRight: i + 1, ArrowLeft: i - 1 + titles.length, Home: 0, End: titles.length - 1 }[event.key];
          if (step === undefined) return;
          event.preventDefault();
          open(titles[step % titles.length]);
        });
        return tab;
      }));
    }
    root.hidden = titles.length < 2;
    root.dataset.value = JSON.stringify(value);
    for (const tab of root.children) {
      const selected = tab.textContent === value;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
    }
    // What the tabs switch belongs to another widget, which may come into the page later than this one.
    requestAnimationFrame(() => {
      const box = root.closest(".gnnsample-explorer")?.querySelector(".gs-figures");
      if (!box || titles.length < 2) return;
      box.id ||= `${id}-panel`;
      box.setAttribute("role", "tabpanel");
      box.setAttribute("aria-label", value);
      for (const tab of root.children) tab.setAttribute("aria-controls", box.id);
    });
  };
  return { field: root, paint };
}

const KINDS = { range: renderRange, select: renderSelect, checkbox: renderCheckbox, tabs: renderTabs };

async function render({ model, el }) {
  const store = await storeOf(model);
  // Random, since every control runs its own copy of this module: a counter would give two explorers the same ids.
  const id = `gs-${model.get("name")}-${Math.random().toString(36).slice(2)}`;
  const kind = model.get("kind");
  const root = element("div", { className: kind === "tabs" ? "gs-tabs" : `gs-control gs-${kind}` });
  root.dataset.name = model.get("name");
  const send = sender(model, store);
  const { field, paint, stop = () => {} } = KINDS[kind]({ model, store, root, id, send });
  if (model.get("help")) {
    root.append(element("div", { className: "gs-help", id: `${id}-help`, textContent: model.get("help") }));
    field.setAttribute("aria-describedby", `${id}-help`);
  }
  // A value on its way to the kernel outranks what the kernel still believes, or the handle would jump back mid-drag.
  const update = () => {
    if (send.waiting) return;
    paint(store.get("instead") ?? store.get("value"));
    root.dataset.value = JSON.stringify(store.get("value"));  // the state's, whatever is shown
  };
  const NAMES = ["value", "min", "max", "options", "disabled", "instead"];
  NAMES.forEach((name) => store.on(`change:${name}`, update));
  update();
  el.append(root);
  return () => {
    stop();
    send.stop();
    NAMES.forEach((name) => store.off(`change:${name}`, update));
  };
}

export default { render };
