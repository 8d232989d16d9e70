//! What the options say, checked: the identity of a handler's messages and how long it is kept.

use syn::{Receiver, ReceiverKind};

use crate::duration::{self, Duration};
use crate::errors::Errors;
use crate::identity::{self, Each, Field, Identity, Scope};
use crate::options::{Name, Options};
use crate::signature::{Role, Signature, plain_name};
use crate::suggest::nearest;
use crate::types::{self, Passing};

/// Longest consumer name, and longest literal text of a sender, in bytes.
const LONGEST_NAME: usize = 128;

/// The options of a handler.
pub(crate) struct Settings {
    pub(crate) key: Identity,
    pub(crate) sender: Identity,
    pub(crate) consumer: Consumer,
    pub(crate) retention: Duration,
    pub(crate) horizon: Option<Duration>,
    pub(crate) missing: Option<Missing>,
    pub(crate) occurred_at: Option<Field>,
    /// Is a message that is too old acknowledged?
    pub(crate) skip_expired: bool,
    pub(crate) sequence: Option<Sequence>,
    pub(crate) fingerprint: Option<Identity>,
    pub(crate) replay: bool,
    pub(crate) each: Option<Each>,
    /// In milliseconds.
    pub(crate) wait: Option<Wait>,
    pub(crate) retry: u16,
    pub(crate) isolation: Option<Isolation>,
}

/// How long to wait for a rival.
pub(crate) struct Wait {
    pub(crate) millis: u64,
    /// As written.
    pub(crate) text: String,
}

/// What a handler's transaction is isolated from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    const ALL: [Self; 3] = [Self::Serializable, Self::RepeatableRead, Self::ReadCommitted];

    /// As written in the attribute.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

/// Whose order is kept, and what says which message is newer.
pub(crate) struct Sequence {
    pub(crate) entity: Identity,
    pub(crate) number: Field,
}

/// The name of a handler.
pub(crate) struct Consumer {
    pub(crate) name: String,
    /// Did the user choose it, or was it made from the names of package and function?
    pub(crate) chosen: bool,
}

/// What happens to a message without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Reject,
    Process,
}

impl Settings {
    /// Checks the options; what is wrong has been reported when it returns.
    pub(crate) fn read(options: &Options, signature: &Signature, package: Option<&str>, errors: &mut Errors) -> Self {
        let retention = duration(options, Name::Retention, errors);
        let horizon = duration(options, Name::Horizon, errors);
        if let (Some(horizon), Some(text)) = (horizon, options.text(Name::Horizon)) {
            // A retention that is there and wrong says nothing about the horizon.
            let kept = retention.or_else(|| (!options.mentions(Name::Retention)).then_some(Duration::WEEK));
            if let Some(kept) = kept.filter(|kept| kept.secs() <= horizon.secs()) {
                errors.on(text, too_late(horizon, kept, retention.is_none()));
            }
        }
        let missing = missing(options, errors);
        check_combinations(options, missing, signature, errors);
        let each = options.text(Name::Each).and_then(|text| Each::read(text, signature, errors));
        if options.mentions(Name::Each) && each.is_none() {
            // The templates name items that nobody knows.
            return Self::of_nothing(consumer(options, signature, package, errors));
        }
        let scope = &Scope { signature, each: each.as_ref() };
        let key = options.text(Name::Key).and_then(|text| Identity::read(text, scope, errors));
        identity::check_key(options, key.as_ref(), scope, errors);
        let sender = options.text(Name::Sender).and_then(|text| Identity::read(text, scope, errors));
        if let (Some(sender), Some(text)) = (&sender, options.text(Name::Sender)) {
            let length: usize = sender.template.literals.iter().map(String::len).sum();
            if length > LONGEST_NAME {
                let message = format!("the text of `sender` is {length} bytes long: write at most {LONGEST_NAME}");
                errors.on(text, message);
            }
        }
        let occurred_at = options
            .text(Name::OccurredAt)
            .and_then(|text| Field::read(Name::OccurredAt.entry().text, text, scope, errors));
        let sequence = sequence(options, scope, errors);
        let fingerprint = fingerprint(options, scope, errors);
        Self {
            key: key.unwrap_or_default(),
            sender: sender.unwrap_or_default(),
            consumer: consumer(options, signature, package, errors),
            retention: retention.unwrap_or(Duration::WEEK),
            horizon,
            missing,
            occurred_at,
            skip_expired: expired(options, errors),
            sequence,
            fingerprint,
            each,
            replay: options.flag(Name::Replay).is_some(),
            wait: wait(options, errors),
            retry: retry(options, signature, errors),
            isolation: isolation(options, errors),
        }
    }

    /// Of a handler about which more cannot be said; why has been reported.
    fn of_nothing(consumer: Consumer) -> Self {
        Self {
            key: Identity::default(),
            sender: Identity::default(),
            consumer,
            retention: Duration::WEEK,
            horizon: None,
            missing: None,
            occurred_at: None,
            skip_expired: false,
            sequence: None,
            fingerprint: None,
            replay: false,
            each: None,
            wait: None,
            retry: 0,
            isolation: None,
        }
    }
}

fn too_late(horizon: Duration, retention: Duration, default: bool) -> String {
    let by_default = if default { ", the default" } else { "" };
    format!(
        "a message that the sender redelivers after {} finds its claim gone, since `retention` is {}{by_default}: write \
         `retention = \"{}\"`, or a shorter horizon",
        horizon.long(),
        retention.long(),
        horizon.doubled().short(),
    )
}

fn duration(options: &Options, name: Name, errors: &mut Errors) -> Option<Duration> {
    let text = options.text(name)?;
    let value = text.value();
    Duration::parse(&value)
        .map_err(|problem| {
            let example = name.entry().example;
            errors.on(
                text,
                format_args!(
                    "`{value}` {problem}: write a whole number of at least 1 and `s`, `m`, `h`, `d` or `w`, as in `{example}`"
                ),
            );
        })
        .ok()
}

fn missing(options: &Options, errors: &mut Errors) -> Option<Missing> {
    let text = options.text(Name::Missing)?;
    match text.value().as_str() {
        "reject" => Some(Missing::Reject),
        "process" => Some(Missing::Process),
        other => {
            errors.on(
                text,
                format_args!(
                    "`missing` cannot be `{other}`: write `missing = \"reject\"` to refuse messages without a key, or \
                     `missing = \"process\"` to run them without protection"
                ),
            );
            None
        }
    }
}

fn consumer(options: &Options, signature: &Signature, package: Option<&str>, errors: &mut Errors) -> Consumer {
    if let Some(text) = options.text(Name::Consumer) {
        let name = text.value();
        if let Some(problem) = name_problem(&name) {
            errors.on(
                text,
                format_args!(
                    "the consumer's name {problem}: write 1 to {LONGEST_NAME} visible ASCII characters, as in `{}`",
                    Name::Consumer.entry().example
                ),
            );
        }
        return Consumer { name, chosen: true };
    }
    let function = &signature.function.signature.ident;
    let name = format!("{}.{}", package.unwrap_or_default(), plain_name(function));
    let problem = if package.is_none() {
        Some("lacks the package, which only Cargo tells".to_owned())
    } else {
        name_problem(&name).map(|problem| format!("is `{name}`, which {problem}"))
    };
    if let Some(problem) = problem.filter(|_| !options.mentions(Name::Consumer)) {
        let example = Name::Consumer.entry().example;
        errors.on(function, format_args!("the default name of this consumer {problem}: choose one, as in `{example}`"));
    }
    Consumer { name, chosen: false }
}

fn name_problem(name: &str) -> Option<String> {
    match name.chars().find(|char| !char.is_ascii_graphic()) {
        _ if name.is_empty() => Some("is empty".into()),
        Some(' ') => Some("contains a space".into()),
        Some(char) => Some(format!("contains {char:?}")),
        None if name.len() > LONGEST_NAME => Some(format!("is {} characters long", name.len())),
        None => None,
    }
}

fn expired(options: &Options, errors: &mut Errors) -> bool {
    let Some(text) = options.text(Name::Expired) else { return false };
    let value = text.value();
    if value != "skip" {
        errors.on(
            text,
            format_args!(
                "`expired` cannot be `{value}`: write `expired = \"skip\"` to acknowledge messages that are too old, or \
                 remove it to get `Error::Expired`"
            ),
        );
    }
    true
}

fn sequence(options: &Options, scope: &Scope<'_>, errors: &mut Errors) -> Option<Sequence> {
    let texts = options.sequence()?;
    let entity = Identity::read(&texts.entity, scope, errors);
    if let Some(entity) = &entity {
        let consequence = "all messages would be in one order";
        identity::check_parts("entity", consequence, entity, &texts.entity, scope, errors);
    }
    let number = Field::read("number", &texts.number, scope, errors);
    Some(Sequence { entity: entity?, number: number? })
}

fn fingerprint(options: &Options, scope: &Scope<'_>, errors: &mut Errors) -> Option<Identity> {
    let text = options.text(Name::Fingerprint)?;
    let fingerprint = Identity::read(text, scope, errors)?;
    let consequence = "all messages would say the same";
    identity::check_parts("fingerprint", consequence, &fingerprint, text, scope, errors);
    Some(fingerprint)
}

fn wait(options: &Options, errors: &mut Errors) -> Option<Wait> {
    let text = options.text(Name::Wait)?;
    let value = text.value();
    let millis = duration::wait_millis(&value).map_err(|problem| {
        errors.on(
            text,
            format_args!("`{value}` {problem}: write a whole number and `ms`, `s` or `m`, as in `wait = \"5s\"`"),
        );
    });
    Some(Wait { millis: millis.ok()?, text: value })
}

fn retry(options: &Options, signature: &Signature, errors: &mut Errors) -> u16 {
    let Some(count) = options.count(Name::Retry) else { return 0 };
    let once = |receiver: &&Receiver| match &receiver.kind {
        ReceiverKind::Reference(_, _, mutability) => mutability.is_some(),
        ReceiverKind::Typed(_, ty) => types::passing(ty).0 != Passing::Shared,
        _ => true,
    };
    if let Some(receiver) = signature.function.signature.receiver().filter(once) {
        errors.on(receiver, "`retry` may run the body again, and this `self` can be given to it once: write `&self`");
    }
    let times = count.base10_parse().ok().filter(|times| (1..=1000).contains(times));
    if times.is_none() {
        errors.on(count, format_args!("`retry` cannot be {count}: write a number from 1 to 1000"));
    }
    times.unwrap_or_default()
}

fn isolation(options: &Options, errors: &mut Errors) -> Option<Isolation> {
    let text = options.text(Name::Isolation)?;
    let value = text.value();
    let found = Isolation::ALL.into_iter().find(|level| level.text() == value);
    if found.is_none() {
        let near = nearest(&value.to_lowercase(), Isolation::ALL.map(Isolation::text));
        let advice = near.map_or_else(
            || "write one of `\"serializable\"`, `\"repeatable read\"`, `\"read committed\"`".to_owned(),
            |level| format!("write `isolation = \"{level}\"`"),
        );
        errors.on(text, format_args!("there is no isolation `{value}`: {advice}"));
    }
    found
}

/// Options that exclude each other, or need each other.
fn check_combinations(options: &Options, missing: Option<Missing>, signature: &Signature, errors: &mut Errors) {
    if missing == Some(Missing::Process) {
        if let Some(claim) = signature.with_role(Role::Claim).next() {
            errors.on(
                &claim.ty,
                "`missing = \"process\"` runs messages without a key, which have no claim: remove this parameter, or \
                 write `missing = \"reject\"`",
            );
        }
        for name in [Name::Replay, Name::Fingerprint] {
            if let Some(place) = options.place(name) {
                let option = name.entry().text;
                errors.on(
                    place,
                    format_args!(
                        "`missing = \"process\"` runs messages without a key, for which `{option}` has nothing to keep: \
                         remove `{option}`, or write `missing = \"reject\"`"
                    ),
                );
            }
        }
    }
    if options.mentions(Name::Each) {
        for name in [Name::Replay, Name::Fingerprint] {
            if let Some(place) = options.place(name) {
                let option = name.entry().text;
                errors.on(
                    place,
                    format_args!("`{option}` is about one message, and `each` takes many: remove one of the two"),
                );
            }
        }
    }
    if let (Some(place), false) = (options.place(Name::Expired), options.mentions(Name::OccurredAt)) {
        let example = Name::OccurredAt.entry().example;
        errors.on(place, format_args!("`expired` needs a timestamp to judge by: add `{example}`"));
    }
    if options.mentions(Name::Sequence) && !options.mentions(Name::Key) {
        let of_claims =
            [Name::Missing, Name::OccurredAt, Name::Retention, Name::Horizon, Name::Replay, Name::Fingerprint];
        for name in of_claims {
            if let Some(place) = options.place(name) {
                let option = name.entry().text;
                errors.on(
                    place,
                    format_args!(
                        "`{option}` is about claims, and `sequence` alone makes none: add a `key`, or remove `{option}`"
                    ),
                );
            }
        }
        if let Some(claim) = signature.with_role(Role::Claim).next() {
            errors.on(&claim.ty, "`sequence` alone makes no claim: add a `key`, or remove this parameter");
        }
    }
}
