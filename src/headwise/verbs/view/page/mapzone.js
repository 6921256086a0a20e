/* The zone of the head map: its words, its legend, and which map is painted when. */
const MapZone = (function () {
  const { header, runs } = Data;
  const REPAINTS = ["show", "order", "discount", "look"];
  const readout = document.querySelector("#map-readout span");
  const maps = runs.map((run) => ({ run, map: HeadMap(run, run.suffix) }));

  function build() {
    for (const one of maps) {
      one.map.build();
      Save.map(one);
    }
    document.getElementById("map-open").addEventListener("click", maps[0].map.open);
  }

  function words(state) {
    const { title, marks } = MapWords.scale(state);
    Ink.legend(document.getElementById("map-legend"), title, marks);
    document.getElementById("map-note").textContent = MapWords.said(state);
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

  return { build, render, focusPinned: () => maps[0].map.focusPinned() };
})();
