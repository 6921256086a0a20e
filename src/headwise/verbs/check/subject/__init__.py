"""From a user's function, class, factory or module to a `Subject` that `check` can ask.

The rooms: what parameters mean (`signature`, `reading`, `meaning`, `weight_names`, `words`); the weights it
holds (`held_maps`, `stored`, `unfusing`, `projecting`, `lazy`) or is given (`drawn_weights`); its sizes
(`hints`, `solving`, `sizes_to_try`); how it is asked (`way`, `handing`, `masks`, `rotation`, `caches`,
`arrays`, `asker`, `trial`, `around`); one protected call (`caller`, `random_state`, `raised`) and what it
returned (`answers`); making one from a class (`building`); and the doors (`of_callable`, `subject_of`).
"""

from headwise.verbs.check.subject.examined import Examined
from headwise.verbs.check.subject.subject_of import subject_of

__all__ = ["Examined", "subject_of"]
