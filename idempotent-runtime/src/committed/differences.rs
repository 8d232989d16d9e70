//! What differs between two tables of handlers, and what that means.

use std::fmt::Write as _;

use super::table::Row;
use super::{CatalogChange, Identities};

pub(super) fn differences(old: &[Row], new: &[Row]) -> Vec<CatalogChange> {
    let of = |rows: &[Row], consumer: &str| rows.iter().find(|row| row.consumer == consumer).cloned();
    let mut gone: Vec<&Row> = old.iter().filter(|row| of(new, &row.consumer).is_none()).collect();
    let mut changes = Vec::new();
    for row in new {
        match of(old, &row.consumer) {
            Some(before) => changed(&before, row, &mut changes),
            None => match renamed_from(&gone, row)[..] {
                [only] => changes.push(renamed(gone.remove(only), row)),
                [] => changes.push(change(
                    row,
                    "new".to_owned(),
                    Identities::Stay,
                    "those of other handlers. It processes whatever it is given, messages too that others have processed, and \
                     what a queue still holds from before".to_owned(),
                )),
                ref several => changes.push(perhaps_renamed(several.iter().map(|&index| gone[index]), row)),
            },
        }
    }
    for row in gone {
        changes.push(change(
            row,
            "gone".to_owned(),
            Identities::Stay,
            "those of other handlers. Messages in flight for it find nobody; its claims stay until they are purged, so that it \
             would recognise its messages if it came back by then".to_owned(),
        ));
    }
    changes
}

fn change(row: &Row, what: String, identities: Identities, meaning: String) -> CatalogChange {
    CatalogChange { consumer: row.consumer.clone(), what, identities, meaning }
}

/// Which of those that are gone it may have been: the same function under another consumer name, or else any that has
/// only changed its own name.
fn renamed_from(gone: &[&Row], row: &Row) -> Vec<usize> {
    let all = |is: &dyn Fn(&Row) -> bool| (0..gone.len()).filter(|&index| is(gone[index])).collect::<Vec<_>>();
    let identity = |row: &Row| [&row.key, &row.sender, &row.entity].map(Clone::clone);
    let last = |row: &Row| row.function.rsplit("::").next().map(str::to_owned);
    let same_function = all(&|before| before.function == row.function);
    if !same_function.is_empty() {
        return same_function;
    }
    let moved = all(&|before| identity(before) == identity(row) && last(before) == last(row));
    if !moved.is_empty() {
        return moved;
    }
    all(&|before| identity(before) == identity(row) && module(before) == module(row))
}

fn module(row: &Row) -> Option<&str> {
    row.function.rsplit_once("::").map(|(module, _)| module)
}

fn renamed(before: &Row, after: &Row) -> CatalogChange {
    let mut what = format!("renamed, was `{}`", before.consumer);
    let mut others = Vec::new();
    changed(before, after, &mut others);
    for other in &others {
        let _ = write!(what, "; {}", other.what);
    }
    let meaning = format!(
        "every message that is redelivered from now on is taken for new, and positions of `sequence` begin anew. Keep the \
         name with `consumer = \"{}\"`",
        before.consumer
    );
    change(after, what, Identities::Change, meaning)
}

/// Several are gone that it may have been.
fn perhaps_renamed<'r>(before: impl Iterator<Item = &'r Row>, after: &Row) -> CatalogChange {
    let names: Vec<_> = before.map(|row| format!("`{}`", row.consumer)).collect();
    change(
        after,
        format!("new, or renamed, was {}", names.join(" or ")),
        Identities::Change,
        "if it is one of these, every message of it that is redelivered from now on is taken for new, and positions of \
         `sequence` begin anew. Keep its name with `consumer`"
            .to_owned(),
    )
}

/// What has changed about a handler that has kept its name.
fn changed(before: &Row, after: &Row, changes: &mut Vec<CatalogChange>) {
    let mut add = |what: String, identities, meaning: &str| {
        changes.push(change(after, what, identities, meaning.to_owned()));
    };
    for (name, old, new) in [("key", &before.key, &after.key), ("sender", &before.sender, &after.sender)] {
        if old == new {
            continue;
        }
        let what = format!("{name} {} instead of {}", shown(new), shown(old));
        if old.is_empty() && name == "key" {
            add(
                what,
                Identities::Stay,
                "so far only positions told what was applied, and they still do; claims begin now",
            );
        } else if new.is_empty() && name == "key" {
            add(what, Identities::Change, "claims are no longer asked: only the position tells what was applied");
        } else if literals(old) == literals(new) && literals(new).len() > 1 {
            add(
                what,
                Identities::Depend,
                "the text around the parts is the same. If a part has another value now, every message that is redelivered \
                 is taken for new",
            );
        } else {
            add(
                what,
                Identities::Change,
                "every message that is redelivered from now on is taken for new. Deploy it when no redelivery is due any \
                 more, or give the handler another consumer name and let the old one finish its queue",
            );
        }
    }
    if before.entity != after.entity {
        let what = format!("sequence of {} instead of {}", shown(&after.entity), shown(&before.entity));
        let meaning = match (before.entity.as_str(), after.entity.as_str()) {
            ("", _) => "positions begin now: the next message of each entity is applied, whatever its number",
            (_, "") => {
                "old numbers are not stale any more: an older message that arrives late is applied over a newer one"
            }
            _ => {
                "positions begin anew: the next message of each entity is applied, also one that is older than what was"
            }
        };
        let identities = if before.entity.is_empty() { Identities::Stay } else { Identities::Change };
        add(what, identities, meaning);
    }
    if !after.key.is_empty() && !before.key.is_empty() {
        match duration("retention", &before.retention, &after.retention) {
            Durations::Equal => {}
            Durations::Other { what, shorter } => {
                let meaning = if shorter {
                    "claims that are there keep their expiry; of messages processed from now on, what is redelivered later \
                     than that runs again (with `occurred_at`: is refused), dead letters that are replayed by hand among it"
                } else {
                    "claims that are there keep their earlier expiry; the table grows until the first new ones expire"
                };
                add(what, Identities::Stay, meaning);
            }
            Durations::Unreadable { what } => {
                add(
                    what,
                    Identities::Stay,
                    "so it does not tell whether claims have been kept for longer than they will be",
                );
            }
        }
    }
    match duration("horizon", &before.horizon, &after.horizon) {
        Durations::Equal => {}
        Durations::Other { what, .. } | Durations::Unreadable { what } => {
            add(what, Identities::Stay, "it is only compared with the retention");
        }
    }
    for name in before.options.keys().chain(after.options.keys().filter(|name| !before.options.contains_key(*name))) {
        let [old, new] = [before, after].map(|row| row.options.get(name).map(String::as_str));
        // That of a sequence that is new, or gone, is told with its entity.
        if old != new && (name != "number" || (old.is_some() && new.is_some())) {
            let option = |value: Option<&str>| match value {
                None => "none".to_owned(),
                Some("") => "it".to_owned(),
                Some(value) => format!("`{value}`"),
            };
            let what = format!("{name}: {} instead of {}", option(new), option(old));
            let identities = if name == "number" { Identities::Depend } else { Identities::Stay };
            add(what, identities, option_meaning(name, old.is_some(), new.is_some()));
        }
    }
}

/// What it means for messages in flight that an option is not what it was.
fn option_meaning(name: &str, was: bool, is: bool) -> &'static str {
    match (name, was, is) {
        ("number", ..) => {
            "new numbers are compared with old ones: where they are smaller, every message is stale, and acknowledged without \
             running, until they have caught up"
        }
        ("occurred_at", true, false) => {
            "what is redelivered after its claim was purged is no longer refused: it runs again"
        }
        ("occurred_at", false, true) => {
            "what is older than the retention and has no claim is no longer run, a backlog after an outage among it"
        }
        ("occurred_at", ..) => "if the new timestamp is later than the old one, what was purged runs again",
        ("expired", _, true) => "what is too old is acknowledged without running, and no longer an error",
        ("expired", ..) => "what is too old is an error, and no longer acknowledged",
        ("missing", _, true) => "messages without a key run, each delivery of them",
        ("missing", ..) => "messages without a key are refused, and no longer run",
        ("fingerprint", _, true) => {
            "claims that are there are compared with none of the new fingerprints: their keys with another content are \
             duplicates"
        }
        ("fingerprint", ..) => "a key that comes with another content is a duplicate, and no longer refused",
        ("replay", _, true) => "claims that are there hold no answer: their messages are duplicates without a value",
        ("replay", ..) => "duplicates no longer get the first answer",
        _ => "this version of the library does not know the option",
    }
}

fn shown(text: &str) -> String {
    if text.is_empty() { "none".to_owned() } else { format!("`{text}`") }
}

/// The text around a template's placeholders.
fn literals(template: &str) -> Vec<&str> {
    template
        .split('{')
        .enumerate()
        .map(|(i, part)| if i == 0 { part } else { part.split_once('}').map_or(part, |p| p.1) })
        .collect()
}

/// How two cells of durations differ.
enum Durations {
    Equal,
    Other { what: String, shorter: bool },
    Unreadable { what: String },
}

/// Compares what the cells mean: `7d` is `1w`. An empty cell is no duration where the other one is.
fn duration(column: &str, before: &str, after: &str) -> Durations {
    let wanted = |cell: &str| !cell.is_empty() || column == "retention";
    let [old, new] = [before, after].map(seconds);
    if old == new && (old.is_some() || before == after) {
        return Durations::Equal;
    }
    if old.is_none() && wanted(before) {
        let cell = if before.is_empty() { "empty".to_owned() } else { format!("`{before}`") };
        let what = format!(
            "{column} {}, and in the file {cell}, which is no duration: a whole number and `s`, `m`, `h`, `d` or `w`, \
             as in `7d`",
            shown(after)
        );
        return Durations::Unreadable { what };
    }
    Durations::Other { what: format!("{column} {} instead of {}", shown(after), shown(before)), shorter: new < old }
}

/// Of a duration as the attribute writes it.
fn seconds(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse::<u64>().ok().filter(|_| digits)?.checked_mul(unit)
}
