//! The section that a handler's documentation gains, written for somebody who has never heard of idempotency keys.

use syn::{Pat, Type};

use crate::check::Handler;
use crate::display::display;
use crate::identity::{Identity, Root};
use crate::options::TABLE;
use crate::settings::{Missing, Sequence, Settings};
use crate::signature::{Role, Signature};
use crate::template::Part;
use crate::types;

/// The whole section, as Markdown.
pub(crate) fn section(handler: &Handler<'_>) -> String {
    let Handler { signature, settings, .. } = handler;
    let mut text = String::from("\n# Idempotency\n\n");
    if let Some(each) = &settings.each {
        let batch = code(&each.outer.to_string());
        text.extend([
            "Each item of ",
            &batch,
            " is processed once. The body gets the fresh ones alone, claimed together; what has been processed before, or \
             comes twice in the batch, it does not get. The answer, `Batch`, tells what each item led to. ",
            &source(signature),
        ]);
        if !settings.key.template.source.is_empty() {
            template(&mut text, "The key of an item is", &settings.key, signature);
            text.extend(["\n", &stored_form(&settings.key, signature)]);
        }
    } else if settings.key.template.source.is_empty() {
        text.push_str(
            "Messages of one entity are applied in order, each once. When one arrives that is not newer than what was \
             applied, the body does not run, and the answer is `Ok(Outcome::Stale(_))`. ",
        );
        text.push_str(&source(signature));
    } else {
        let answer = if settings.replay { "`Ok(Outcome::Replayed(value))`" } else { "`Ok(Outcome::Duplicate(_))`" };
        text.extend([
            "Each message is processed once. When one arrives whose key has been processed before, the body does not run, \
             and the answer is ",
            answer,
            ". ",
            &source(signature),
        ]);
        template(&mut text, "The key of a message is", &settings.key, signature);
        text.extend(["\n", &stored_form(&settings.key, signature)]);
    }
    if !settings.sender.roots.is_empty() {
        template(&mut text, "Its sender is", &settings.sender, signature);
    }
    if let Some(Sequence { entity, .. }) = &settings.sequence {
        template(&mut text, "The entity whose order is kept is", entity, signature);
    }
    if let Some(fingerprint) = &settings.fingerprint {
        template(&mut text, "What its key stands for is", fingerprint, signature);
    }
    text.push_str("\n\n");
    for sentence in TABLE.iter().map(|entry| (entry.in_force)(settings)).filter(|sentence| !sentence.is_empty()) {
        text.extend(["- ", &sentence, "\n"]);
    }
    text
}

/// A template and where its parts come from.
fn template(text: &mut String, introduction: &str, identity: &Identity, signature: &Signature) {
    let (source, parts) = (code(&identity.template.source), parts(identity, signature));
    text.extend(["\n\n", introduction, " ", &source, ":\n\n", &parts]);
}

/// What callers pass in the place of the transaction.
fn source(signature: &Signature) -> String {
    let transaction = signature.with_role(Role::Transaction).flat_map(|parameter| &parameter.bindings).next();
    let name = transaction.map_or_else(|| "tx".to_owned(), |binding| binding.outer.to_string());
    format!(
        "For {}, pass where the work is to be done: `&pool`, `&store`, `&mut connection`, or `&mut *transaction` to join \
         a transaction of your own.",
        code(&name)
    )
}

/// Where each part comes from.
fn parts(identity: &Identity, signature: &Signature) -> String {
    let mut table = String::from("| part | parameter | type | field |\n|---|---|---|---|\n");
    for (part, root) in identity.parts() {
        let (parameter, ty) = origin(root, signature);
        let path = part.path();
        let field = if path.is_empty() { "the value itself".to_owned() } else { cell(path.trim_start_matches('.')) };
        let part = cell(&format!("{{{}}}", part.text));
        table.extend(["| ", &part, " | ", &parameter, " | ", &ty, " | ", &field, " |\n"]);
    }
    table
}

/// The parameter of a part, and its type as the user wrote it.
fn origin(root: &Root, signature: &Signature) -> (String, String) {
    let Some(parameter) = root.parameter.map(|index| &signature.parameters[index]) else {
        return (cell("self"), cell("Self"));
    };
    if root.of_item {
        let batch = parameter.bindings.first().map_or_else(|| "batch".to_owned(), |binding| binding.outer.to_string());
        let item = types::items(&parameter.ty).map(display).unwrap_or_default();
        return (format!("an item of {}", cell(&batch)), cell(&item));
    }
    let ty = cell(&display(&parameter.ty));
    let ty = if matches!(parameter.pattern, Pat::Ident(_)) { ty } else { format!("a part of {ty}") };
    (cell(&root.ident.to_string()), ty)
}

/// What the database holds for a message, by example.
fn stored_form(key: &Identity, signature: &Signature) -> String {
    let mut stored = String::new();
    let mut values = Vec::new();
    let mut literals = key.template.literals.iter();
    stored.extend(literals.next().map(String::as_str));
    for ((index, (part, root)), literal) in key.parts().enumerate().zip(literals) {
        let value = example(part, root, index, signature);
        values.push(format!("{} is {}", code(&part.text), code(value)));
        stored.push_str(value);
        stored.push_str(literal);
    }
    let own = own_punctuation(key);
    let (and_own, before, after) = match own.first() {
        None => (String::new(), "a b".to_owned(), "a%20b".to_owned()),
        Some(first) => {
            let own: Vec<String> = own.iter().map(|char| code(&char.to_string())).collect();
            let and_own = format!(", and the punctuation of the template itself ({})", own.join(" "));
            (and_own, format!("a{first}b"), format!("a%{:02X}b", u32::from(*first)))
        }
    };
    format!(
        "When {}, the database holds {}. Inside a value, spaces, `%`, control characters and everything outside \
         ASCII{and_own} are percent-encoded: {} is stored as {}. A key of more than 255 bytes is stored as its SHA-256.",
        values.join(" and "),
        code(&stored),
        code(&before),
        code(&after),
    )
}

/// A value that a part could have, of letters and digits alone, which are stored as they are.
fn example(part: &Part, root: &Root, index: usize, signature: &Signature) -> &'static str {
    let ty = root.parameter.filter(|_| part.steps.is_empty()).map(|index| &signature.parameters[index].ty);
    match ty.map(|ty| types::passing(ty).1) {
        Some(Type::Path(path)) if path.path.is_ident("bool") => "true",
        Some(Type::Path(path)) if path.path.is_ident("char") => "x",
        _ => ["42", "7", "3", "5", "2"][index % 5],
    }
}

/// The punctuation in the literal text, each character once.
fn own_punctuation(identity: &Identity) -> Vec<char> {
    let mut own = Vec::new();
    for char in identity.template.literals.iter().flat_map(|literal| literal.chars()) {
        if char.is_ascii_punctuation() && !own.contains(&char) {
            own.push(char);
        }
    }
    own
}

/// Nothing to say beyond what the section says anyway.
pub(crate) const fn nothing(_: &Settings) -> String {
    String::new()
}

pub(crate) fn consumer(settings: &Settings) -> String {
    let name = code(&settings.consumer.name);
    if settings.consumer.chosen {
        format!(
            "**Consumer:** {name}, chosen for this handler. Another consumer processes the same message for itself."
        )
    } else {
        format!(
            "**Consumer:** {name}, made from the names of package and function. Another consumer processes the same \
             message for itself, so that a rename begins anew; `consumer = \"…\"` gives a name that stays."
        )
    }
}

pub(crate) fn sender(settings: &Settings) -> String {
    let source = &settings.sender.template.source;
    if source.is_empty() {
        "**Sender:** not told apart, so that keys must be unique among all messages of this consumer.".to_owned()
    } else {
        format!("**Sender:** {}. The same key from another sender is another message.", code(source))
    }
}

pub(crate) fn retention(settings: &Settings) -> String {
    if settings.key.template.source.is_empty() {
        return String::new();
    }
    let retention = settings.retention.long();
    match (&settings.occurred_at, settings.horizon) {
        (Some(_), _) => String::new(),
        (None, Some(horizon)) => format!(
            "**Retention:** a processed key is remembered for {retention}, longer than the {} within which the sender \
             may redeliver.",
            horizon.long()
        ),
        (None, None) => format!(
            "**Retention:** a processed key is remembered for {retention}. A message that is redelivered later is \
             taken for a new one."
        ),
    }
}

pub(crate) fn occurred_at(settings: &Settings) -> String {
    let Some(field) = &settings.occurred_at else { return String::new() };
    let retention = settings.retention.long();
    let refused = if settings.skip_expired {
        "acknowledged as `Ok(Outcome::Expired(_))` without being run"
    } else {
        "refused with `Error::Expired`, to be parked for a person to decide"
    };
    format!(
        "**Retention:** a processed key is remembered until {retention} after the message occurred, by its own {}. A message \
         that is older and has no key on record is {refused}: nobody could tell whether it was processed. One that claims \
         to be from more than a day ahead is refused with `Error::OccurredInFuture`.",
        code(&field.part.text)
    )
}

pub(crate) fn sequence(settings: &Settings) -> String {
    let Some(Sequence { entity, number }) = &settings.sequence else { return String::new() };
    format!(
        "**Order:** a message runs only if its {} is above that of the last one applied to the same {}; otherwise the answer \
         is `Ok(Outcome::Stale(_))`. How far an entity has come is kept for ever.",
        code(&number.part.text),
        code(&entity.template.source)
    )
}

pub(crate) fn fingerprint(settings: &Settings) -> String {
    let Some(fingerprint) = &settings.fingerprint else { return String::new() };
    format!(
        "**Fingerprint:** {}, kept as a digest. The same key with another content is refused with \
         `Error::FingerprintMismatch`.",
        code(&fingerprint.template.source)
    )
}

pub(crate) fn replay(settings: &Settings) -> String {
    if settings.replay {
        "**Replay:** what the first delivery returned is stored as JSON and given to every later one. What a failed run \
         returned is never stored."
            .to_owned()
    } else {
        String::new()
    }
}

pub(crate) fn wait(settings: &Settings) -> String {
    let Some(wait) = &settings.wait else { return String::new() };
    if wait.millis == 0 {
        "**Wait:** not at all for another delivery of the same key that is being processed: `Error::InProgress` at once.".to_owned()
    } else {
        format!(
            "**Wait:** at most {} for another delivery of the same key that is being processed, then \
             `Error::InProgress`.",
            code(&wait.text)
        )
    }
}

pub(crate) fn retry(settings: &Settings) -> String {
    match settings.retry {
        0 => String::new(),
        times => format!(
            "**Retry:** after a transient error of the database the body runs again, up to {times} more times, each in a \
             transaction of its own. Never after a commit whose fate is unknown, and not in a transaction of the caller's."
        ),
    }
}

pub(crate) fn isolation(settings: &Settings) -> String {
    settings.isolation.map_or_else(String::new, |level| {
        format!("**Isolation:** {}. It cannot join a transaction of the caller's.", code(level.text()))
    })
}

pub(crate) fn missing(settings: &Settings) -> String {
    let part = if settings.sequence.is_some() { "key or the entity" } else { "key" };
    let part = if settings.key.template.source.is_empty() { "entity" } else { part };
    match settings.missing {
        Some(Missing::Process) => format!(
            "**Missing key:** a message of which a part of the {part} is absent, empty or blank is processed without \
             protection, each time that it arrives."
        ),
        Some(Missing::Reject) | None => format!(
            "**Missing key:** a message of which a part of the {part} is absent, empty or blank is refused with \
             `Error::MissingKey`."
        ),
    }
}

/// A code span, whatever the text contains.
fn code(text: &str) -> String {
    if text.contains('`') { format!("``` {text} ```") } else { format!("`{text}`") }
}

/// A code span in a table's cell.
fn cell(text: &str) -> String {
    code(text).replace('|', "\\|")
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
