// A guess: question, field and button; once it is locked, guess and result side by side. What counts as a guess and when
// it is locked is the kernel's business; the page sends a wish and shows what the store says.

/** The plain model that holds what changes (see store.py). */
const storeOf = (model) => model.widget_manager.get_model(model.get("store").slice("IPY_MODEL_".length));

function element(tag, props = {}, ...children) {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  // Otherwise the notebook, in command mode, takes keys that are meant for the field.
  node.dataset.lmSuppressShortcuts = "true";
  return node;
}

async function render({ model, el }) {
  const store = await storeOf(model);
  const options = model.get("options");
  const id = `gs-guess-${Math.random().toString(36).slice(2)}`;
  const question = element("label", { className: "gs-question", htmlFor: id, textContent: model.get("question") });
  const field = options.length
    ? element("select", { id, name: model.get("name") }, element("option", { value: "", textContent: "choose …" }),
      ...options.map((text) => element("option", { value: text, textContent: text })))
    : element("input", { id, name: model.get("name"), type: "number", step: "any" });
  for (const [end, key] of [["min", "low"], ["max", "high"]]) {
    if (!options.length && model.get(key) !== null) field[end] = model.get(key);
  }
  const lock = element("button", { type: "button", textContent: "Lock my guess" });
  const row = element("div", { className: "gs-field" }, field, element("span", { textContent: model.get("unit") }), lock);
  const said = element("div", { className: "gs-said" });
  said.setAttribute("role", "status");
  const part = (label) => {
    const number = element("div", { className: "gs-number" });
    const bar = element("div", { className: "gs-bar" });
    bar.setAttribute("aria-hidden", "true");
    return { number, bar, node: element("div", { className: "gs-one" }, element("div", { className: "gs-label", textContent: label }), number, bar) };
  };
  const guess = part("You guessed"), result = part("It is");
  const both = element("div", { className: "gs-both" }, guess.node, result.node);
  const root = element("div", { className: "gs-guess" }, element("div", {}, question), row, both, said);
  root.dataset.name = model.get("name");

  const typed = () => (field.value === "" ? null : options.length ? field.value : Number(field.value));
  const ready = () => typed() !== null && (options.length > 0 || Number.isFinite(typed()));
  const paint = () => {
    const locked = store.get("locked"), value = store.get("value"), found = store.get("found");
    root.dataset.locked = String(locked);
    row.hidden = locked;
    both.hidden = !locked;
    result.node.hidden = !found;
    if (!locked && value !== null && document.activeElement !== field) field.value = value;
    lock.disabled = !ready();
    guess.number.textContent = store.get("guessed");
    result.number.textContent = found;
    const numbers = [value, store.get("result")];
    const drawn = found !== "" && numbers.every((n) => typeof n === "number" && n >= 0) && Math.max(...numbers) > 0;
    [guess, result].forEach((one, i) => {
      one.bar.hidden = !drawn;
      if (drawn) one.bar.style.width = `${(100 * numbers[i]) / Math.max(...numbers)}%`;
    });
    said.textContent = [store.get("text"), store.get("message")].filter(Boolean).join(" ");
  };
  const send = () => {
    if (!ready() || store.get("locked")) return;
    lock.disabled = true;
    store.set("wish", typed());
    store.save_changes();
  };
  field.addEventListener("input", () => { lock.disabled = !ready(); });
  field.addEventListener("keydown", (event) => { if (event.key === "Enter") send(); });
  lock.addEventListener("click", send);
  const watched = ["value", "locked", "result", "guessed", "found", "text", "message"].map((name) => `change:${name}`);
  for (const event of watched) store.on(event, paint);
  el.append(root);
  paint();
  return () => { for (const event of watched) store.off(event, paint); };
}

export default { render };
