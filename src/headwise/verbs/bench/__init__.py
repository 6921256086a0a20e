"""How fast is attention on this machine, against the other backends here: the verb `bench`.

`works` lists what is timed, `problem` makes its tensors, `backends` brings one module for each library,
`timing` takes their turns, `exact` says how far each is off, `compute` makes a frozen `Bench` of it, and
`render_text` and `render_json` show it. Nothing is imported here, so that the works are listed without torch.
"""
