// A disclosure button, the code, and a button that copies it.

/** The plain model that holds what changes (see store.py). */
const storeOf = (model) => model.widget_manager.get_model(model.get("store").slice("IPY_MODEL_".length));

async function render({ model, el }) {
  const store = await storeOf(model);
  const root = document.createElement("div");
  root.className = "gs-code";
  const toggle = Object.assign(document.createElement("button"), { type: "button", className: "gs-button" });
  const copy = Object.assign(document.createElement("button"), { type: "button", className: "gs-button", textContent: "Copy" });
  const text = document.createElement("pre");
  text.tabIndex = 0;
  text.setAttribute("aria-label", "Python code that reproduces the present state");
  // The notebook's own shortcuts must not act on keys meant for these.
  for (const node of [toggle, copy, text]) node.dataset.lmSuppressShortcuts = "true";
  const paint = () => {
    const open = store.get("shown");
    toggle.textContent = open ? "Hide the code" : "Show the code";
    toggle.setAttribute("aria-expanded", String(open));
    copy.hidden = text.hidden = !open;
    text.textContent = store.get("code");
  };
  toggle.addEventListener("click", () => { store.set("shown", !store.get("shown")); store.save_changes(); paint(); });
  copy.addEventListener("click", async () => {
    let done = "Copied";
    try {
      await navigator.clipboard.writeText(store.get("code"));
    } catch {
      // No clipboard on a page without https: select the text, so that the usual keys copy it.
      getSelection().selectAllChildren(text);
      done = "Selected: press Ctrl+C";
    }
    copy.textContent = done;
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  });
  store.on("change:code", paint);
  store.on("change:shown", paint);
  root.append(toggle, copy, text);
  el.append(root);
  paint();
  return () => { store.off("change:code", paint); store.off("change:shown", paint); };
}

export default { render };
