"""Rights: exactly what is named is granted, and nothing else."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oplogd.errors import RightError
from oplogd.model.names import OPLOG, TopicName
from oplogd.stream.passes import Pass
from oplogd.web.access.caller import Caller
from oplogd.web.access.right_bodies import MAX_PATTERNS, MAX_VALUES, body_of, right_of
from oplogd.web.access.rights import ALL_LEASES, ALL_TOPICS, READ_ALL, WRITE_ALL, Right
from oplogd.web.http.problem import Problem
from tests.kits.models.properties import examples

NAMES = [TopicName(ns, topic) for ns in ("a", "b", "system") for topic in ("x", "y", "oplog")]
LEASES = ["orders", "orders-1", "order", "other"]
topic_patterns = st.sampled_from(["*", "a/*", "b/*", "a/x", "b/y", "system/oplog"])
lease_patterns = st.sampled_from(["*", "orders", "orders*", "order*", "other"])
values = st.none() | st.lists(st.sampled_from(["t", "u", "v"]), min_size=1)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    body: dict[str, Any] = {
        name: draw(st.lists(topic_patterns, max_size=3)) for name in ("read", "write", "manage")
    }
    body["leases"] = draw(st.lists(lease_patterns, max_size=3))
    for name in ("types", "parents"):
        if (given_values := draw(values)) is not None:
            body[name] = given_values
    return body


def topic_fits(pattern: str, name: TopicName) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), str(name)) is not None


def lease_fits(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) is not None


@examples()
@given(bodies())
def test_a_right_grants_what_its_patterns_name(body: dict[str, Any]) -> None:
    right = right_of(body)
    for member in ("read", "write", "manage"):
        granted = {name for name in NAMES if name in getattr(right, member)}
        assert granted == {
            name for name in NAMES if any(topic_fits(each, name) for each in body[member])
        }
    assert {name for name in LEASES if name in right.leases} == {
        name for name in LEASES if any(lease_fits(each, name) for each in body["leases"])
    }
    for member in ("types", "parents"):
        assert getattr(right, member) == (frozenset(body[member]) if member in body else None)
    assert right_of(body_of(right)) == right
    reading = {name: body[name] for name in ("read", "types", "parents") if name in body}
    assert right.reading() == right_of(reading)


@examples()
@given(bodies(), bodies())
def test_a_narrowed_right_grants_what_both_grant(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    maker, asked = right_of(one), right_of(other)
    both = maker.narrowed(asked)
    for member in ("read", "write", "manage"):
        for name in NAMES:
            in_both = name in getattr(maker, member) and name in getattr(asked, member)
            assert (name in getattr(both, member)) == in_both
    for lease in LEASES:
        assert (lease in both.leases) == (lease in maker.leases and lease in asked.leases)
    for member in ("types", "parents"):
        sets = [
            each for each in (getattr(maker, member), getattr(asked, member)) if each is not None
        ]
        expected = frozenset.intersection(*sets) if sets else None
        assert getattr(both, member) == expected


@examples()
@given(bodies())
def test_no_right_shows_or_ends_more_than_manage_says(body: dict[str, Any]) -> None:
    right = right_of(body)
    assert right.manages_all == right.shows_others == ("*" in body["manage"])
    whole = "*" in body["manage"] and "*" in body["read"] and not {"types", "parents"} & set(body)
    assert right.is_whole_reader == whole
    for namespace in ("a", "b", "system", "c"):
        patterns = {each for name in ("read", "write", "manage") for each in body[name]}
        assert right.sees_namespace(namespace) == bool({"*", f"{namespace}/*"} & patterns)
    for name in NAMES:
        assert right.may_see(name) == any(topic_fits(each, name) for each in patterns)
        if not right.sees_namespace(name.namespace):
            assert (name in right.named_in(name.namespace)) == right.may_see(name)


def test_types_or_parents_alone_are_the_right_to_read_the_operations() -> None:
    right = right_of({"parents": ["user/ada"]})
    assert (OPLOG in right.read, right.parents) == (True, frozenset({"user/ada"}))
    assert TopicName("system", "_txn.default") not in right.read
    assert right_of({"types": ["Video"]}).types == frozenset({"video"})
    assert OPLOG not in right_of({"types": ["video"], "write": ["system/oplog"]}).read
    assert OPLOG not in right_of({"types": ["video"], "read": []}).read
    assert right_of({}) == Right()
    nothing = {"types": ["video"], "read": []}
    assert body_of(right_of(nothing)) == nothing, "without read it would be the right to read"


def test_the_shared_passwords_grant_all_of_their_side() -> None:
    assert READ_ALL.is_whole_reader
    assert (READ_ALL.read, READ_ALL.write, READ_ALL.manages_all) == (
        ALL_TOPICS,
        Right().write,
        False,
    )
    assert (WRITE_ALL.write, WRITE_ALL.manage, WRITE_ALL.leases) == (
        ALL_TOPICS,
        ALL_TOPICS,
        ALL_LEASES,
    )
    assert not WRITE_ALL.is_whole_reader
    assert OPLOG not in WRITE_ALL.read
    narrowed = READ_ALL.narrowed(right_of({"read": ["*"], "manage": ["*"]}))
    assert (narrowed.read, narrowed.shows_others) == (ALL_TOPICS, False)


SECRET = "sesame"


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, "right"),
        ([], "right"),
        ({"reed": []}, "reed"),
        ({"read": "a/*"}, "read"),
        ({"read": None}, "read"),
        ({"read": [1]}, "read"),
        ({"read": [SECRET]}, "read"),
        ({"read": [f"{SECRET}/"]}, "read"),
        ({"read": [f"/{SECRET}"]}, "read"),
        ({"read": [f"a/{SECRET}*"]}, "read"),
        ({"read": ["*/x"]}, "read"),
        ({"read": ["**"]}, "read"),
        ({"read": ["../x"]}, "read"),
        ({"read": [""]}, "read"),
        ({"write": ["a/*/b"]}, "write"),
        ({"manage": ["ä/x"]}, "manage"),
        ({"leases": ["*x"]}, "leases"),
        ({"leases": ["a/b"]}, "leases"),
        ({"leases": [""]}, "leases"),
        ({"leases": [".."]}, "leases"),
        ({"types": []}, "types"),
        ({"types": [""]}, "types"),
        ({"types": [f"{SECRET}/a"]}, "types"),
        ({"types": [f"{SECRET},a"]}, "types"),
        ({"types": ["x" * 256]}, "types"),
        ({"parents": []}, "parents"),
        ({"parents": "user/ada"}, "parents"),
        ({"parents": ["\ud800"]}, "parents"),
        ({"types": ["\ud800"]}, "types"),
        ({"\ud800": []}, "right"),
        ({"parents": ["x" * 65_537]}, "parents"),
        ({"read": ["a/x"] * MAX_PATTERNS, "leases": ["x"]}, "right"),
        ({"types": ["x"] * MAX_VALUES, "parents": ["x"]}, "types and parents"),
        ({"sees_all": True}, "sees_all"),
    ],
)
def test_a_right_that_breaks_a_rule_is_refused_with_its_member(value: Any, field: str) -> None:
    with pytest.raises(RightError) as refused:
        right_of(value)
    assert refused.value.field == field
    assert SECRET not in str(refused.value)


def test_the_limits_of_a_right_can_be_used_up() -> None:
    right = right_of(
        {
            "read": [f"a/x{n}" for n in range(MAX_PATTERNS)],
            "parents": [f"p{n}" for n in range(MAX_VALUES)],
        }
    )
    assert len(right.read.names) == MAX_PATTERNS
    assert len(right.parents or ()) == MAX_VALUES
    longest = {"types": ["x" * 255], "parents": ["x" * 65_536]}
    assert right_of(longest).parents == frozenset(longest["parents"])


def test_all_patterns_and_values_are_parts_of_a_right() -> None:
    right = right_of(
        {
            "read": ["a/*", "a/x", "b/y"],
            "write": ["a/*", "b/*", "a/x"],
            "manage": ["a/x"],
            "leases": ["orders", "other", "x*"],
            "types": ["t"],
            "parents": [f"p{n}" for n in range(20)],
        }
    )
    assert right.parts == 3 + 3 + 1 + 3 + 1 + 20


@pytest.mark.parametrize(
    ("body", "check", "refusal"),
    [
        ({"read": ["a/x"]}, lambda caller: caller.require_read(NAMES[1]), "read a/y"),
        ({"read": ["a/x"]}, lambda caller: caller.require_write(NAMES[0]), "write a/x"),
        ({"write": ["a/x"]}, lambda caller: caller.require_manage(NAMES[0]), "manage a/x"),
        ({"read": ["*"]}, lambda caller: caller.require_pointers(NAMES[0]), "manage a/x"),
        (
            {"leases": ["a"]},
            lambda caller: caller.require_seen(NAMES[0]),
            "read, write or manage a/x",
        ),
        ({"leases": ["a*"]}, lambda caller: caller.require_lease("b"), "use the lease b"),
        ({"manage": ["a/*"]}, lambda caller: caller.require_lease_shown("b"), "use the lease b"),
        ({"manage": ["*"]}, lambda caller: caller.require_lease("b"), "use the lease b"),
        ({"read": ["*"]}, lambda caller: caller.require_some_write(), "write a topic"),
        (
            {"write": ["*"], "types": ["t"]},
            lambda caller: caller.require_objects(["t/1", "u/2"]),
            "write objects of the type u",
        ),
    ],
)
def test_a_client_without_a_right_is_told_which_one(
    body: dict[str, Any], check: Any, refusal: str
) -> None:
    with pytest.raises(Problem) as refused:
        check(Caller("user:ada", right_of(body)))
    assert (refused.value.status, refused.value.detail) == (
        403,
        f"the right to {refusal} is missing",
    )


def test_a_client_owns_what_it_began_unless_it_manages_all() -> None:
    narrow = Caller("user:ada", right_of({"read": ["*"], "manage": ["a/*"]}))
    assert (narrow.owner, narrow.shown_owner) == ("user:ada", "user:ada")
    manager = Caller("user:ada", right_of({"manage": ["*"]}))
    assert (manager.owner, manager.shown_owner) == (None, None)
    reader = Caller("password", READ_ALL)
    assert reader.shown_owner is None
    reader.require_pointers(NAMES[0])


def test_a_client_passes_its_credential_and_its_end_on_to_its_streams() -> None:
    caller = Caller("user:ada", READ_ALL, "credential", 100.0, 60.0)
    assert caller.pass_ == Pass("credential", 100.0, 60.0)
    assert (caller.noted, Caller("password", WRITE_ALL).noted) == ("user:ada", None)


def test_only_a_subject_names_the_consumers_of_its_client() -> None:
    for name, shown in ((None, "x"), ("password", "x"), ("user:ada", "x"), ("sub:eve", "eve")):
        assert Caller(name, READ_ALL).named("x") == shown
