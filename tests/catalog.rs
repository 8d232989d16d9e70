//! The catalogue of a program is committed and compared, so that no identity changes unseen (C13).

use std::process::Command;
use std::{env, fs};

use idempotent_runtime::{Identities, catalog};
use sqlx::SqlitePool;

mod orders {
    use idempotent_runtime::idempotent;
    use sqlx::SqliteTransaction;

    pub(super) struct Shipped {
        pub(super) order: u64,
        pub(super) parcel: u32,
    }

    #[idempotent(key = "{shipped.order}|{shipped.parcel}", sender = "carrier", retention = "30d", horizon = "14d")]
    pub(super) async fn note(_tx: &mut SqliteTransaction<'_>, shipped: &Shipped) -> sqlx::Result<()> {
        Ok(())
    }
}

mod payments {
    use idempotent_runtime::idempotent;
    use sqlx::SqliteTransaction;

    #[idempotent(key = "{id}", consumer = "payments.settle", sender = "{provider}", missing = "process")]
    pub(super) async fn settle(_tx: &mut SqliteTransaction<'_>, provider: &str, id: Option<&str>) -> sqlx::Result<()> {
        Ok(())
    }
}

mod stock {
    use idempotent_runtime::{Error, UnixSeconds, idempotent};
    use sqlx::SqliteTransaction;

    pub(super) struct Level {
        pub(super) item: &'static str,
        pub(super) version: u64,
        pub(super) at: UnixSeconds,
    }

    #[idempotent(
        key = "{level.item}:{level.version}",
        consumer = "stock.set",
        sequence(entity = "{level.item}", number = "level.version"),
        occurred_at = "level.at",
        expired = "skip",
        fingerprint = "{level.item}",
        replay
    )]
    pub(super) async fn set(_tx: &mut SqliteTransaction<'_>, level: &Level) -> Result<u8, Error> {
        Ok(1)
    }
}

/// As the documentation tells applications to do.
#[test]
fn the_catalogue_is_the_committed_one() {
    catalog().compare_with_file("catalog.md").unwrap();
}

/// What is said if this table had been committed.
fn compared(edit: impl FnOnce(String) -> String) -> Vec<(String, Identities, String)> {
    let table = catalog().to_markdown();
    let committed = edit(table.clone());
    assert_ne!(committed, table, "the edit has done nothing");
    let difference = catalog().compare(&committed).expect_err("it differs");
    let text = difference.to_string();
    assert_eq!(format!("{difference:?}"), text, "`unwrap` shows the same");
    assert!(text.contains("IDEMPOTENT_CATALOG=overwrite"), "{text}");
    let mut changes = Vec::new();
    for change in difference.changes() {
        let said = change.to_string();
        assert!(text.contains(&said), "{said} is not in: {text}");
        changes.push((change.consumer().to_owned(), change.identities(), said));
    }
    changes
}

/// One change, and everything that is said of it.
fn one(edit: impl FnOnce(String) -> String, consumer: &str, identities: Identities, parts: &[&str]) {
    let changes = compared(edit);
    let [(of, found, text)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((of.as_str(), *found), (consumer, identities), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn a_renamed_handler_takes_every_redelivery_for_new() {
    let was = |name: &'static str| move |table: String| table.replace("`tests.note`", name);
    let parts = ["was `tests.remember`", "IDENTITIES CHANGE", "taken for new", "consumer = \"tests.remember\""];
    one(was("`tests.remember`"), "tests.note", Identities::Change, &parts);
    // The function has another name too, and stands in the same module.
    let function = |table: String| was("`tests.remember`")(table).replace("orders::note", "orders::remember");
    one(function, "tests.note", Identities::Change, &parts);
    // It has moved as well, with its name.
    let moved = |table: String| was("`old.note`")(table).replace("catalog::orders::note", "old::note");
    one(moved, "tests.note", Identities::Change, &["was `old.note`"]);
}

#[test]
fn a_change_of_what_is_in_an_identity_is_told_from_a_change_of_names() {
    let key = |from: &'static str| move |table: String| table.replace("{shipped.order}\\|{shipped.parcel}", from);
    one(
        key("{shipped.order}"),
        "tests.note",
        Identities::Change,
        &["key `{shipped.order}|{shipped.parcel}` instead of `{shipped.order}`"],
    );
    one(
        key("{shipped.order}/{shipped.parcel}"),
        "tests.note",
        Identities::Change,
        &["every message that is redelivered"],
    );
    one(key("{s.order}\\|{s.parcel}"), "tests.note", Identities::Depend, &["another value"]);
    one(
        |table| table.replace("carrier", "post"),
        "tests.note",
        Identities::Change,
        &["sender `carrier` instead of `post`"],
    );
    one(|table| table.replace("{provider}", "{from}"), "payments.settle", Identities::Depend, &["another value"]);
    let entity = |table: String| table.replace("carrier `` |  |", "carrier `` | `` {shipped.order} `` |");
    one(entity, "tests.note", Identities::Change, &["sequence of none", "applied over a newer one"]);
}

#[test]
fn retention_and_horizon_change_no_identity_and_the_consequence_is_told() {
    let retention = |of: &'static str| move |table: String| table.replace("| 30d |", of);
    one(
        retention("| 90d |"),
        "tests.note",
        Identities::Stay,
        &["retention `30d` instead of `90d`", "runs again", "dead letters"],
    );
    one(retention("| 1w |"), "tests.note", Identities::Stay, &["retention `30d` instead of `1w`", "grows"]);
    let horizon = |of: &'static str| move |table: String| table.replace("| 14d |", of);
    one(horizon("| 1d |"), "tests.note", Identities::Stay, &["horizon `14d` instead of `1d`"]);
    one(horizon("|  |"), "tests.note", Identities::Stay, &["horizon `14d` instead of none"]);
}

#[test]
fn durations_are_compared_and_not_their_units() {
    let table = catalog().to_markdown();
    assert!(table.contains("| 7d |") && table.contains("| 14d |"), "as the attribute has them: {table}");
    for (written, the_same) in [("7d", "1w"), ("7d", "168h"), ("30d", "720h"), ("14d", "2w"), ("7d", "007d")] {
        catalog().compare(&table.replace(&format!("| {written} |"), &format!("| {the_same} |"))).unwrap();
    }
}

#[test]
fn a_cell_that_is_no_duration_is_called_so() {
    for (cell, shown) in
        [("9 d", "`9 d`"), ("", "empty"), ("9", "`9`"), ("+9d", "`+9d`"), ("ninety days", "`ninety days`")]
    {
        let edit = |table: String| table.replace("| 30d |", &format!("| {cell} |"));
        let changes = compared(edit);
        let [(of, Identities::Stay, said)] = &changes[..] else { panic!("{cell}: {changes:?}") };
        assert_eq!(of, "tests.note");
        for part in ["retention `30d`", &format!("in the file {shown}, which is no duration"), "does not tell"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
        assert!(!said.contains("grows") && !said.contains("runs again"), "{said}");
    }
    one(
        |table| table.replace("| 14d |", "| soon |"),
        "tests.note",
        Identities::Stay,
        &["`soon`, which is no duration"],
    );
}

#[test]
fn what_a_formatter_or_an_editor_makes_of_the_file_is_the_same_table() {
    let table = catalog().to_markdown();
    let aligned: String = table
        .lines()
        .map(|line| match line.strip_prefix("|---") {
            Some(_) => format!("  |{}\n", " :------------- |".repeat(8)),
            None => {
                format!("  {}\n", line.replace(" | ", "            |      ").replace("| consumer", "|   consumer  "))
            }
        })
        .collect();
    assert!(aligned.contains("consumer              |"), "{aligned}");
    let open = table.replace(" |\n", "\n").replace("|\n", "\n");
    for text in [aligned, open, format!("\u{feff}{table}"), table.replace('\n', "\r\n")] {
        catalog().compare(&text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        let changed = text.replace("carrier", "post");
        assert_eq!(catalog().compare(&changed).expect_err("it differs").changes().len(), 1, "{changed}");
    }
}

#[test]
fn a_file_that_holds_more_than_one_truth_is_no_catalogue() {
    let table = catalog().to_markdown();
    let line = table.lines().find(|line| line.contains("tests.note")).expect("it is there");
    let twice = format!("{table}{}\n", line.replace("{shipped.order}", "{shipped.id}"));
    let whole = format!("<<<<<<< HEAD\n{table}=======\n{table}>>>>>>> rename\n");
    let lines = table.replace(line, &format!("<<<<<<< HEAD\n{line}\n||||||| base\n=======\n{line}\n>>>>>>> rename"));
    for (text, says) in [
        (twice, "two lines for the consumer `tests.note`"),
        (format!("{table}{line}\n"), "two lines for the consumer `tests.note`"),
        (whole, "both sides of a merge (`<<<<<<< HEAD`)"),
        (lines, "both sides of a merge"),
        (format!("{table}>>>>>>> rename\n"), "both sides of a merge (`>>>>>>> rename`)"),
        (format!("{table}\n{table}"), "several tables"),
    ] {
        let error = catalog().compare(&text).expect_err(says);
        let said = error.to_string();
        assert!(error.changes().is_empty() && said.contains(says), "{says} is not in: {said}");
        assert!(said.contains("IDEMPOTENT_CATALOG=overwrite"), "{said}");
    }
}

#[test]
fn new_and_removed_handlers_are_told() {
    let without = |table: String| table.split_inclusive('\n').filter(|line| !line.contains("payments")).collect();
    one(without, "payments.settle", Identities::Stay, &["new", "messages too that others have processed"]);
    let more = |table: String| table + "| `old.thing` | `` {id} `` |  |  | 1w |  |  | `old::thing` |\n";
    one(more, "old.thing", Identities::Stay, &["gone", "find nobody"]);
    // Two at once are two changes.
    assert_eq!(compared(|table| more(without(table))).len(), 2);
}

#[test]
fn where_a_handler_stands_and_what_stands_around_the_table_is_not_compared() {
    let table = catalog().to_markdown().replace("catalog::orders::note", "elsewhere::note");
    catalog().compare(&format!("# Our handlers\n\nAsk before you change one.\n\n{table}\nThe end.\n")).unwrap();
}

#[test]
fn a_file_that_is_missing_or_no_catalogue_says_what_to_do() {
    let missing = catalog().compare_with_file("no-such-file.md").expect_err("it is not there").to_string();
    assert!(
        missing.contains("no-such-file.md cannot be read") && missing.contains("IDEMPOTENT_CATALOG=overwrite"),
        "{missing}"
    );
    for text in ["", "# Handlers\n", "| consumer | key |\n|---|---|\n| a | b |\n"] {
        let error = catalog().compare(text).expect_err("it is no catalogue");
        let said = error.to_string();
        assert!(error.changes().is_empty() && said.contains("holds no table"), "{said}");
        assert!(said.contains("IDEMPOTENT_CATALOG=overwrite"), "{said}");
    }
}

/// In a process of its own, where the variable is set.
#[test]
fn a_change_is_accepted_by_a_variable() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut test = Command::new(env::current_exe().expect("this test"));
    let test =
        test.args(["--ignored", "--exact", "written"]).current_dir(&folder).env("IDEMPOTENT_CATALOG", "overwrite");
    assert!(test.status().expect("it runs").success());
    let written = fs::read_to_string(folder.path().join("new.md")).expect("it is there");
    assert_eq!(written, catalog().to_markdown());
}

#[test]
#[ignore = "run by the test above"]
fn written() {
    catalog().compare_with_file("new.md").unwrap();
}

#[test]
fn an_option_that_decides_whether_a_message_runs_is_compared_and_its_consequence_told() {
    const OPTIONS: &str =
        "number = level.version, occurred_at = level.at, fingerprint = {level.item}, expired = skip, replay";
    assert!(catalog().to_markdown().contains(OPTIONS), "{}", catalog().to_markdown());
    let was = |options: &'static str| move |table: String| table.replace(&format!("`` {OPTIONS} ``"), options);
    let rest = "fingerprint = {level.item}, expired = skip, replay";
    for (old, identities, parts) in [
        (format!("number = level.at, occurred_at = level.at, {rest}"), Identities::Depend, ["`level.at`", "stale"]),
        (
            format!("number = level.version, {rest}"),
            Identities::Stay,
            ["occurred_at: `level.at` instead of none", "no longer run"],
        ),
        (
            format!("number = level.version, occurred_at = level.sent, {rest}"),
            Identities::Stay,
            ["instead of `level.sent`", "runs again"],
        ),
        (
            OPTIONS.replace("expired = skip, ", ""),
            Identities::Stay,
            ["expired: `skip` instead of none", "acknowledged without"],
        ),
        (
            OPTIONS.replace("{level.item}", "{level.version}"),
            Identities::Stay,
            ["fingerprint: `{level.item}` instead of `{level.version}`", "none of the new fingerprints"],
        ),
        (OPTIONS.replace(", replay", ""), Identities::Stay, ["replay: it instead of none", "without a value"]),
    ] {
        let old = Box::leak(format!("`` {old} ``").into_boxed_str());
        one(was(old), "stock.set", identities, &parts);
    }
    // What is gone is told too.
    one(
        |table| table.replace("`` missing = process ``", ""),
        "payments.settle",
        Identities::Stay,
        &["missing: `process` instead of none", "each delivery"],
    );
    let more =
        |table: String| table.replace("| 30d | 14d |  |", "| 30d | 14d | `` occurred_at = shipped.at, replay `` |");
    let changes = compared(more);
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert!(changes[0].2.contains("occurred_at: none instead of `shipped.at`") && changes[0].2.contains("runs again"));
    assert!(changes[1].2.contains("no longer get the first answer"), "{changes:?}");
}

/// A wrong guess would tell somebody to take a name that another handler's claims have.
#[test]
fn of_several_handlers_that_it_may_have_been_each_is_named() {
    let rows = |names: [&'static str; 2]| {
        move |table: String| {
            let row = table.lines().find(|line| line.contains("tests.note")).expect("it is there").to_owned();
            let [first, second] = names.map(|name| {
                let (consumer, function) = name.split_once(' ').expect("two names");
                row.replace("`tests.note`", &format!("`{consumer}`")).replace("orders::note", function)
            });
            table.replace(&row, &format!("{first}\n{second}"))
        }
    };
    let changes = compared(rows(["old.a orders::a", "old.b orders::b"]));
    assert_eq!(changes.len(), 3, "{changes:?}");
    let of_note = changes.iter().find(|(of, ..)| of == "tests.note").expect("it is told");
    assert!(of_note.1 == Identities::Change && of_note.2.contains("was `old.a` or `old.b`"), "{changes:?}");
    // The function itself is there, under another name.
    let changes = compared(rows(["old.a orders::a", "old.b orders::note"]));
    assert!(changes.iter().any(|(of, _, said)| of == "tests.note" && said.contains("renamed, was `old.b`")));
    assert!(changes.iter().any(|(of, _, said)| of == "old.a" && said.contains("gone")), "{changes:?}");
}

/// What the comparison sees of a renamed handler, and that one with a name of its own keeps it.
#[test]
fn a_derived_consumer_follows_its_function_and_a_chosen_one_does_not() {
    let consumers: Vec<_> =
        catalog().handlers().iter().map(|handler| (handler.consumer(), handler.is_consumer_chosen())).collect();
    assert_eq!(consumers, [("payments.settle", true), ("stock.set", true), ("tests.note", false)]);
    // Called or not, they are there.
    let _ = |pool: &SqlitePool, shipped: &orders::Shipped, level: &stock::Level| {
        drop((orders::note(pool, shipped), payments::settle(pool, "stripe", None), stock::set(pool, level)));
    };
}
