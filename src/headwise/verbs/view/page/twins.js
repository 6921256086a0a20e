/* Where two runs are compared, each part that shows a run stands twice in the document: the second with ids of its
   own. The map of heads stands a third time, for the difference. */
(function () {
  const NAMING = ["aria-labelledby", "for"];

  function twin(id, suffix) {
    const original = document.getElementById(id);
    const copy = original.cloneNode(true);
    for (const one of copy.querySelectorAll("[data-once]")) one.remove();
    for (const one of [copy, ...copy.querySelectorAll("*")]) {
      if (one.id) one.id += suffix;
      for (const name of NAMING) if (one.hasAttribute(name)) one.setAttribute(name, one.getAttribute(name) + suffix);
    }
    original.parentElement.append(copy);
  }

  if (Data.runs.length < 2) return;
  const [, second] = Data.runs;
  document.documentElement.classList.add("compared");
  for (const id of ["run-facts", "text-part", "map-part", "bench", "run-foot"]) twin(id, second.suffix);
  if (Data.sameHeads) twin("map-part", "-difference");
})();
