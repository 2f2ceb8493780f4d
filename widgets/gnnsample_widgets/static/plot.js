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

const pen = document.createElement("canvas").getContext("2d");

/**
 * The small lines under a title, broken at their separators where the panel is too narrow: the origin of the times
 * stands at their end, and must not be cut off.
 */
function fitTitle(layout, width) {
  const parts = /^([^]*?<br>)<sub>([^]*)<\/sub>$/.exec(layout.title?.text ?? "");
  if (!parts) return layout;
  const look = layout.template?.layout ?? {};
  const size = layout.title.font?.size ?? look.title?.font?.size ?? 17;
  pen.font = `${0.72 * size}px ${layout.font?.family ?? look.font?.family ?? "sans-serif"}`;
  const lines = [];
  for (const piece of parts[2].split(" · ")) {
    const longer = lines.length ? `${lines[lines.length - 1]} · ${piece}` : piece;
    if (lines.length && pen.measureText(longer.replace(/<[^>]*>/g, "")).width <= width - 36) lines[lines.length - 1] = longer;
    else lines.push(piece);
  }
  const extra = 22 * (lines.length - 1);
  const top = layout.margin?.t ?? look.margin?.t ?? 100;
  return {
    ...layout,
    title: { ...layout.title, text: parts[1] + lines.map((line) => `<sub>${line}</sub>`).join("<br>") },
    margin: { ...layout.margin, t: top + extra },
    height: (layout.height ?? 380) + extra,
  };
}

const CONFIG = { displaylogo: false, responsive: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };

/** The plain model that holds what changes (see store.py). */
const storeOf = (model) => model.widget_manager.get_model(model.get("store").slice("IPY_MODEL_".length));

/** When the page has a moment: what is on its way to other widgets goes first. */
const idle = () => new Promise((resolve) => {
  if (globalThis.requestIdleCallback) requestIdleCallback(resolve, { timeout: 1500 }); else setTimeout(resolve, 50);
});

async function render({ model, el }) {
  const store = await storeOf(model);
  const host = document.createElement("div");
  host.className = "gs-plot";
  host.dataset.name = model.get("name");
  host.setAttribute("role", "img");
  host.textContent = "Loading the figure …";
  el.append(host);
  let lib = null;
  let busy = false;
  let stale = false;
  let closed = false;
  let drawnWidth = 0;

  let listening = false;
  const report = ({ points: [mark] }) => {
    const clicks = (store.get("clicked").clicks ?? 0) + 1;  // a second click on the same mark is news, too
    store.set("clicked", { trace: mark.curveNumber, x: mark.x, y: mark.y, clicks });
    store.save_changes();
  };

  const draw = async () => {
    stale = true;
    host.dataset.busy = "1";
    if (busy) return;
    busy = true;
    try {
      if (!lib) {
        await idle();
        lib = await plotly(model);
        await idle();
      }
      while (stale && !closed) {
        stale = false;
        const data = decode(JSON.parse(store.get("data")));
        drawnWidth = host.clientWidth;
        const plain = { ...decode(JSON.parse(store.get("frame"))), autosize: true, width: undefined };
        const layout = fitTitle(plain, drawnWidth);
        if (!host.classList.contains("js-plotly-plot")) host.textContent = "";
        host.style.height = `${layout.height ?? 380}px`;
        host.setAttribute("aria-label", store.get("alt"));
        await lib.react(host, data, layout, CONFIG);
        if (!listening) host.on("plotly_click", report);
        listening = true;
      }
    } catch (error) {
      host.textContent = `This figure could not be drawn: ${error.message}`;
      console.error(error);
    } finally {
      busy = false;
      host.dataset.busy = "0";
    }
  };

  // Plotly measures once; a panel that becomes wider, or visible, must be told. Not at every pixel, and not at once: a
  // figure that grows can bring a scroll bar, which makes it narrower, which makes it grow.
  let later = null;
  const observer = new ResizeObserver(() => {
    const width = host.clientWidth;
    if (!lib || width === 0 || Math.abs(width - drawnWidth) < 3) return;
    clearTimeout(later);
    later = setTimeout(draw, 100);
  });
  observer.observe(el);
  const NAMES = ["data", "frame"];
  NAMES.forEach((name) => store.on(`change:${name}`, draw));
  draw();
  return () => {
    closed = true;
    clearTimeout(later);
    observer.disconnect();
    NAMES.forEach((name) => store.off(`change:${name}`, draw));
    if (lib) lib.purge(host);
  };
}

export default { render };
