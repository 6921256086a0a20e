/* The zone of the head map: its words, its legend, and which map is painted when. */
const MapZone = (function () {
  const { measures, runs } = Data;
  const REPAINTS = ["show", "order", "discount", "look"];
  const readout = document.querySelector("#map-readout span");
  const maps = MapSource.all.map((source) => ({ source, map: HeadMap(source) }));

  function build() {
    for (const one of maps) {
      one.map.build();
      Save.map(one);
      const name = document.getElementById("map-name" + one.source.suffix);
      name.textContent = one.source.name;
      name.hidden = maps.length === 1;
    }
    document.getElementById("map-open").addEventListener("click", maps[0].map.open);
  }

  const drawn = ({ source }, state) => source.drawsMaps || Boolean(MapSource.shown(state));

  function words(state) {
    const scales = maps.filter((one) => drawn(one, state)).map(({ source }) => source)
      .filter((source, i) => i === 0 || source.palette !== "scale").map((source) => MapWords.scale(source, state));
    document.getElementById("map-legend").replaceChildren(...scales.flatMap(Ink.legend));
    document.getElementById("map-note").textContent = MapWords.said(state) + MapWords.missing(state);
  }

  /* What the previewed head measures, in each map. */
  function read(state) {
    const key = state.show !== "maps" ? state.show : state.order;
    const statistic = measures.find((one) => one.key === key);
    const named = maps.length > 1 && !Data.sameHeads;
    const heads = (named ? runs : [runs[0]]).map((run) => {
      const { layer, head } = State.current(run);
      return (named ? run.name + " " : "") + "layer " + layer + ", head " + head;
    });
    const values = maps.map(({ source }) => (maps.length > 1 ? source.name + " " : "") + source.say(State.current(source.run), key));
    readout.textContent = heads.join(" · ") + (statistic ? ": " + values.join(" · ") + " " + statistic.unit : "");
  }

  function render(changed) {
    const any = (names) => names.some((name) => changed.has(name));
    for (const one of maps) {
      const state = State.current(one.source.run);
      document.getElementById("map-part" + one.source.suffix).hidden = !drawn(one, state);
      if (any(["look", "order"])) one.map.arrange(state);
      if (any(REPAINTS)) one.map.paint(state);
      one.map.mark(state);
    }
    const state = State.current();
    if (any(REPAINTS)) words(state);
    read(state);
  }

  return { build, render, focusPinned: (run) => maps[run.index].map.focusPinned() };
})();
