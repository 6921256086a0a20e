/* The zone of the head map: its words, its legend, and which map is painted when. */
const MapZone = (function () {
  const { header, runs } = Data;
  const REPAINTS = ["show", "order", "discount", "look"];
  const readout = document.querySelector("#map-readout span");
  const maps = runs.map((run) => ({ run, map: HeadMap(run, run.suffix) }));

  function build() {
    for (const { map } of maps) map.build();
    document.getElementById("map-open").addEventListener("click", maps[0].map.open);
  }

  function words(state) {
    const legend = document.getElementById("map-legend");
    const statistic = MapInk.shown(state);
    if (statistic) {
      const full = MapInk.fullInk(statistic);
      Ink.legend(legend, statistic.unit, [0, 0.5, 1].map((at) => ({ at, text: Words.digits(full * at) })));
    } else {
      Ink.legend(legend, "weight", [0, 0.1, 0.5, 1].map((at) => ({ at: Math.sqrt(at), text: String(at) })));
    }
    const order = state.order === "layer" ? "Layers down, heads across" : "All heads, largest first";
    const together = state.order === "layer" && header.layers.some(MapLayout.of(runs[0]).grouped)
      ? "; heads of one KV head stand together" : "";
    const kept = state.discount && !runs.every(MapInk.whole) && !statistic ? " Pooled maps keep the first token." : "";
    document.getElementById("map-note").textContent = order + together + "." + kept;
  }

  /* What the previewed head measures. */
  function read(state) {
    const key = state.show !== "maps" ? state.show : state.order;
    const statistic = header.statistics.find((one) => one.key === key);
    const value = statistic ? ": " + Words.digits(runs[0].head(state.layer, state.head)[key]) + " " + statistic.unit : "";
    readout.textContent = "layer " + state.layer + ", head " + state.head + value;
  }

  function render(changed) {
    const any = (names) => names.some((name) => changed.has(name));
    for (const { run, map } of maps) {
      const state = State.current(run);
      if (any(["look", "order"])) map.arrange(state);
      if (any(REPAINTS)) map.paint(state);
      map.mark(state);
    }
    const state = State.current();
    if (any(REPAINTS)) words(state);
    read(state);
  }

  return { build, render, maps, focusPinned: () => maps[0].map.focusPinned() };
})();
