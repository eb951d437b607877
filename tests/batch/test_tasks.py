"""Units are the same whatever is done already; small ones are handed over together."""

from ct_dip.batch.tasks import Tasks


def everything(tasks):
    taken = []
    while (task := tasks.take()) is not None:
        taken.append(task)
    return taken


def test_units_do_not_depend_on_what_is_done():
    items = list(range(10, 20))
    whole = everything(Tasks(items, {"dip": items}, {"dip": 4}))
    assert [task.units for task in whole] == [((10, 11, 12, 13),), ((14, 15, 16, 17),), ((18, 19),)]
    rest = everything(Tasks(items, {"dip": [13, 18, 19]}, {"dip": 4}))
    assert [task.units for task in rest] == [((13,),), ((18, 19),)]


def test_methods_advance_together():
    items = list(range(4))
    tasks = Tasks(items, {"fbp": items, "dip": items}, {"fbp": 1, "dip": 2})
    order = [(task.method, task.items) for task in everything(tasks)]
    assert order == [
        ("fbp", (0,)),
        ("dip", (0, 1)),
        ("fbp", (1,)),
        ("fbp", (2,)),
        ("dip", (2, 3)),
        ("fbp", (3,)),
    ]


def test_fast_units_are_put_together_to_a_second():
    items = list(range(1000))
    tasks = Tasks(items, {"fbp": items}, {"fbp": 1})
    first = tasks.take()
    assert first.items == (0,)
    tasks.tell(first, 0.04)
    assert len(tasks.take().units) == 25
    tasks.tell(first, 1e-6)
    assert len(tasks.take().units) <= 100
    slow = Tasks(items, {"fbp": items}, {"fbp": 1})
    slow.tell(slow.take(), 30.0)
    assert len(slow.take().units) == 1
