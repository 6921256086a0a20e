/* Puts the page together: what never changes is written once, the rest is drawn when the selection changes. */
(function () {
  const byId = (id) => document.getElementById(id);
  const benches = Data.runs.map(Bench);

  function controls() {
    const state = State.current();
    byId("show").value = state.show;
    byId("order").value = state.order;
    byId("discount").checked = state.discount;
    for (const radio of document.querySelectorAll('[name="direction"]')) radio.checked = radio.value === State.pinned().direction;
  }

  function render(changed) {
    controls();
    MapZone.render(changed);
    const drawn = benches.map((bench) => bench.render(State.current(bench.run), changed));
    const { layer, head } = State.current();
    if (drawn.every(Boolean)) document.documentElement.dataset.drawn = layer + "." + head;
  }

  function look() {
    Ink.mix();
    State.announce(["look"]);
  }

  function start() {
    const layout = MapLayout.of(Data.runs[0]);
    const alone = Data.runs.length === 1;
    document.documentElement.classList.toggle("beside", alone && layout.widest.num_heads <= 16);
    document.documentElement.style.setProperty("--map-width", layout.wanted() + "px");
    Facts.write();
    for (const bench of benches) {
      bench.build();
      Save.head(bench);
    }
    MapZone.build();
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
