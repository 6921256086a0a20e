/* Puts the page together: what never changes is written once, the rest is drawn when the selection changes. */
(function () {
  const { header } = Data;
  const { model } = header;
  const byId = (id) => document.getElementById(id);
  const REPAINTS_MAP = ["show", "order", "discount", "look"];
  const NEW_HEAD = ["layer", "head", "discount", "look"];
  let drawn = null;            // the HeadWeights on show

  function facts() {
    byId("model-name").textContent = model.name;
    const most = MapLayout.alike ? "" : "up to ";
    const shared = model.num_heads === model.num_kv_heads ? Words.count(model.num_heads, "head")
      : Words.count(model.num_heads, "query head") + " on " + Words.count(model.num_kv_heads, "KV head");
    const parts = [
      model.family, Words.count(model.layers, "layer"), most + shared + " a layer", "head_dim " + model.head_dim,
      model.causal ? "causal" : "looks both ways",
    ];
    if (model.causal && model.kv_bytes_per_token) parts.push(Words.count(model.kv_bytes_per_token, "byte") + " of KV cache a token");
    byId("facts").textContent = parts.join(" · ");
    byId("text-heading").textContent = Words.count(header.seq_len, "token");
    byId("map-heading").textContent = Words.count(header.heads.length, "head");
    byId("map-open").setAttribute("aria-label", "open this head");
  }

  function nextTokens() {
    byId("next-tokens").hidden = !header.next_tokens.length;
    byId("next-list").append(...header.next_tokens.map(({ token, probability }) => {
      const item = Words.element("li");
      const track = Words.element("span", "track");
      const fill = Words.element("span", "fill");
      fill.style.width = 100 * probability + "%";
      track.append(fill);
      const piece = Words.label({ text: token, kind: "text" });
      item.append(Words.element("span", "piece", piece), track, Words.element("span", "number", Words.digits(probability)));
      return item;
    }));
  }

  function foot() {
    const difference = header.max_logit_difference;
    const held = difference === null ? "not compared with the reference attention" : "largest difference of a logit from "
      + header.reference + " attention, on a probe, " + (difference === 0 ? "none" : difference.toExponential(2));
    byId("run-line").textContent = [
      header.program.name + " " + header.program.version, model.name, Words.count(header.seq_len, "token"), held,
    ].join(" · ");
    const tiles = header.layers.filter((layer) => layer.tile).length;
    const weights = tiles === header.layers.length ? "every weight is carried"
      : tiles ? "every weight of " + Words.count(tiles, "layer") + ", elsewhere the " + header.top_k + " largest keys of each row, are carried"
        : "the " + header.top_k + " largest keys of each row are carried";
    const small = MapInk.whole ? "Small maps are not pooled."
      : "Small maps are pooled to " + header.thumbnail_size + " × " + header.thumbnail_size + " cells.";
    byId("exact-line").textContent = "Exact: statistics" + (header.next_tokens.length ? " and next-token probabilities. " : ". ")
      + "In 8 bits: weights (as their square root, so to within 0.004); " + weights + ". " + small;
    byId("caveats").textContent = header.caveats;
  }

  function choices() {
    const option = (value, text) => { const made = Words.element("option", "", text); made.value = value; return made; };
    const named = header.statistics.map(({ key, label }) => [key, label]);
    byId("show").append(option("maps", "maps"), ...named.map(([key, label]) => option(key, label)));
    byId("order").append(option("layer", "by layer"), ...named.map(([key, label]) => option(key, "by " + label)));
    byId("show").addEventListener("change", (event) => State.pin({ show: event.target.value }));
    byId("order").addEventListener("change", (event) => State.pin({ order: event.target.value }));
    byId("discount").addEventListener("change", (event) => State.pin({ discount: event.target.checked }));
    for (const radio of document.querySelectorAll('[name="direction"]')) {
      radio.addEventListener("change", () => State.pin({ direction: radio.value }));
    }
  }

  function controls(state) {
    byId("show").value = state.show;
    byId("order").value = state.order;
    byId("discount").checked = state.discount;
    for (const radio of document.querySelectorAll('[name="direction"]')) radio.checked = radio.value === state.direction;
    Text.pinned(State.pinned.token);
  }

  function mapWords(state) {
    const statistic = header.statistics.find((one) => one.key === state.show);
    if (statistic) {
      const full = MapInk.fullInk(statistic);
      Ink.legend(byId("map-legend"), statistic.unit, [0, 0.5, 1].map((at) => ({ at, text: Words.digits(full * at) })));
    } else {
      Ink.legend(byId("map-legend"), "weight", [0, 0.1, 0.5, 1].map((at) => ({ at: Math.sqrt(at), text: String(at) })));
    }
    const order = state.order === "layer" ? "Layers down, heads across" : "All heads, largest first";
    const together = state.order === "layer" && header.layers.some(MapLayout.grouped)
      ? "; heads of one KV head stand together" : "";
    const kept = state.discount && !MapInk.whole && state.show === "maps" ? " Pooled maps keep the first token." : "";
    byId("map-note").textContent = order + together + "." + kept;
  }

  function headWords(state) {
    const { kv_head: kvHead } = Data.head(state.layer, state.head);
    const others = header.heads
      .filter((one) => one.layer === state.layer && one.kv_head === kvHead && one.head !== state.head)
      .map((one) => one.head);
    byId("depth-heading").textContent = "Layer " + state.layer + ", head " + state.head;
    byId("depth-facts").textContent = others.length
      ? "reads KV head " + kvHead + ", as " + (others.length === 1 ? "head " : "heads ") + Words.list(others) + (others.length === 1 ? " does" : " do")
      : "has KV head " + kvHead + " to itself";
  }

  function render(state, changed) {
    const any = (names) => names.some((name) => changed.has(name));
    controls(state);
    if (any(["look", "order"])) HeadMap.arrange(state);
    if (any(REPAINTS_MAP)) { HeadMap.paint(state); mapWords(state); }
    HeadMap.mark(state);
    const head = Heads.ready(state.layer, state.head, () => State.announce(["layer"]));
    if (!head) return;
    if (head !== drawn || any(NEW_HEAD)) {
      headWords(state);
      Matrix.draw(state, head);
      Arcs.draw(state, head);
      Readings.group(state);
      drawn = head;
    } else {
      Matrix.follow(state);
      Arcs.follow(state, head);
    }
    Text.draw(state, head);
    Readings.row(state, head);
    Readings.statistics(state, head);
    document.documentElement.dataset.drawn = state.layer + "." + state.head;
  }

  function look() {
    Ink.mix();
    State.announce(["look"]);
  }

  function start() {
    document.documentElement.classList.toggle("beside", MapLayout.widest.num_heads <= 16);
    document.documentElement.style.setProperty("--map-width", MapLayout.wanted() + "px");
    facts();
    nextTokens();
    foot();
    choices();
    Text.build();
    HeadMap.build();
    Matrix.build();
    Keys.build();
    State.listen(render);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", look);
    // Reports once at the start as well; only a new width moves anything.
    let width = 0;
    new ResizeObserver(([{ contentRect }]) => {
      if (Math.round(contentRect.width) === width) return;
      width = Math.round(contentRect.width);
      look();
    }).observe(byId("benches"));
  }

  if ("DecompressionStream" in window) start();
  else byId("facts").textContent = "This browser cannot unpack the maps: it has no DecompressionStream. Browsers since 2023 have it.";
})();
