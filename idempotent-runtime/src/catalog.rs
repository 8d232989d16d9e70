//! Every handler of the program.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use crate::Error;
use crate::key::Template;

/// One handler: what the attribute said about it.
#[derive(Debug)]
pub struct Handler {
    spec: Spec,
}

/// What the macro knows of a handler.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "the macro of the same version builds it")]
pub struct Spec {
    /// The consumer's name.
    pub consumer: &'static str,
    /// Whether the attribute gives it.
    pub consumer_chosen: bool,
    /// The key's template.
    pub key: Template,
    /// The sender's template.
    pub sender: Template,
    /// How long a claim is kept.
    pub retention_secs: u64,
    /// How late the sender redelivers.
    pub horizon_secs: Option<u64>,
    /// What happens without a key.
    pub missing: Missing,
    /// The path to the producer's timestamp; empty where the attribute names none.
    pub occurred_at: &'static str,
    /// What happens to a message that is too old.
    pub if_expired: IfExpired,
    /// The template of the entity whose order is kept.
    pub entity: Template,
    /// The path to the number; empty where no order is kept.
    pub number: &'static str,
    /// The template of what the key stands for.
    pub fingerprint: Template,
    /// Whether a duplicate gets the first answer.
    pub replay: bool,
    /// How long to wait for a rival.
    pub wait_millis: Option<u64>,
    /// How often the body may run again.
    pub retry: usize,
    /// What its transaction is isolated from.
    pub isolation: Option<Isolation>,
    /// The function with its module path.
    pub function: &'static str,
    /// Where it stands.
    pub file: &'static str,
    /// Where it stands.
    pub line: u32,
}

impl Spec {
    /// Of a handler without options, whose name and place are to be filled in.
    pub const DEFAULT: Self = Self {
        consumer: "",
        consumer_chosen: false,
        key: Template::EMPTY,
        sender: Template::EMPTY,
        retention_secs: 7 * 86_400,
        horizon_secs: None,
        missing: Missing::Reject,
        occurred_at: "",
        if_expired: IfExpired::Fail,
        entity: Template::EMPTY,
        number: "",
        fingerprint: Template::EMPTY,
        replay: false,
        wait_millis: None,
        retry: 0,
        isolation: None,
        function: "",
        file: "",
        line: 0,
    };
}

/// How far a handler's transaction is isolated from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed before it.
    ReadCommitted,
    /// All statements see what was committed before the first.
    RepeatableRead,
    /// As if transactions ran one after the other.
    Serializable,
}

impl Isolation {
    /// As in SQL.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

/// What happens to a message that is older than the retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExpired {
    /// It is refused with [`Error::Expired`].
    Fail,
    /// It is acknowledged as [`Outcome::Expired`](crate::Outcome::Expired).
    Skip,
}

/// What happens to a message of which a part of the key is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is refused with [`Error::MissingKey`].
    Reject,
    /// It runs without a claim.
    Process,
}

/// How a handler gets from its function's body into the catalogue.
#[derive(Debug)]
pub struct Registered(pub &'static Handler);

inventory::collect!(Registered);

/// The macro's way to make a handler.
#[must_use]
pub const fn handler(spec: Spec) -> Handler {
    Handler { spec }
}

impl Handler {
    /// Who processes: half of the identity of this handler's claims.
    #[must_use]
    pub const fn consumer(&self) -> &'static str {
        self.spec.consumer
    }

    /// Whether `consumer = "…"` names it. A derived name changes when the function or the package is renamed.
    #[must_use]
    pub const fn is_consumer_chosen(&self) -> bool {
        self.spec.consumer_chosen
    }

    /// The key's template, as written; empty where `sequence` stands alone.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        self.spec.key.text()
    }

    /// The sender's template, as written; empty where there is none.
    #[must_use]
    pub const fn sender(&self) -> &'static str {
        self.spec.sender.text()
    }

    /// How long a claim is kept.
    #[must_use]
    pub const fn retention(&self) -> Duration {
        Duration::from_secs(self.spec.retention_secs)
    }

    /// How late the sender may still redeliver, if the attribute says so.
    #[must_use]
    pub fn horizon(&self) -> Option<Duration> {
        self.spec.horizon_secs.map(Duration::from_secs)
    }

    /// The path to the producer's timestamp, as written in `occurred_at`.
    #[must_use]
    pub const fn occurred_at(&self) -> Option<&'static str> {
        some(self.spec.occurred_at)
    }

    /// The template of the entity whose order `sequence` keeps, as written.
    #[must_use]
    pub const fn entity(&self) -> Option<&'static str> {
        some(self.spec.entity.text())
    }

    /// The fingerprint's template, as written.
    #[must_use]
    pub const fn fingerprint(&self) -> Option<&'static str> {
        some(self.spec.fingerprint.text())
    }

    /// Whether a duplicate gets the first answer.
    #[must_use]
    pub const fn replays(&self) -> bool {
        self.spec.replay
    }

    /// The function, with its module path.
    #[must_use]
    pub const fn function(&self) -> &'static str {
        self.spec.function
    }

    /// The file it stands in.
    #[must_use]
    pub const fn file(&self) -> &'static str {
        self.spec.file
    }

    /// The line of its attribute.
    #[must_use]
    pub const fn line(&self) -> u32 {
        self.spec.line
    }

    pub(crate) const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// What else decides whether, and how, a message runs.
    fn options(&self) -> String {
        let Spec { number, missing, if_expired, replay, .. } = self.spec;
        let mut options = Vec::new();
        let values =
            [("number", some(number)), ("occurred_at", self.occurred_at()), ("fingerprint", self.fingerprint())];
        options.extend(values.into_iter().filter_map(|(name, value)| Some(format!("{name} = {}", value?))));
        if if_expired == IfExpired::Skip {
            options.push("expired = skip".to_owned());
        }
        if missing == Missing::Process {
            options.push("missing = process".to_owned());
        }
        if replay {
            options.push("replay".to_owned());
        }
        options.join(", ")
    }

    fn place(&self) -> String {
        format!("`{}` ({}:{})", self.function(), self.file(), self.line())
    }

    /// Refuses a handler whose consumer name another one has too (G7).
    pub(crate) fn check(&'static self) -> Result<(), Error> {
        static BY_CONSUMER: LazyLock<HashMap<&'static str, Vec<&'static Handler>>> = LazyLock::new(|| {
            let mut handlers: HashMap<_, Vec<_>> = HashMap::new();
            for handler in catalog().0 {
                handlers.entry(handler.consumer()).or_default().push(handler);
            }
            handlers.retain(|_, same| same.len() > 1);
            handlers
        });
        if BY_CONSUMER.is_empty() {
            return Ok(()); // every program that is right
        }
        match BY_CONSUMER.get(self.consumer()).map(Vec::as_slice) {
            Some([first, second, ..]) => Err(Error::ConsumerCollision {
                consumer: self.consumer(),
                first: first.place(),
                second: second.place(),
            }),
            _ => Ok(()),
        }
    }
}

const fn some(text: &'static str) -> Option<&'static str> {
    if text.is_empty() { None } else { Some(text) }
}

/// Every handler in the program, sorted by consumer.
///
/// A handler is in the catalogue of every program that links it, called or not.
#[derive(Debug)]
pub struct Catalog(Vec<&'static Handler>);

/// Every handler in the program, sorted by consumer. Check it in a test and at start-up:
///
/// ```
/// idempotent_runtime::catalog().check().expect("every handler has a consumer name of its own");
/// ```
#[must_use]
pub fn catalog() -> Catalog {
    let mut handlers: Vec<_> = inventory::iter::<Registered>.into_iter().map(|&Registered(handler)| handler).collect();
    handlers.sort_by_key(|handler| (handler.consumer(), handler.function()));
    Catalog(handlers)
}

impl Catalog {
    /// The handlers.
    #[must_use]
    pub fn handlers(&self) -> &[&'static Handler] {
        &self.0
    }

    /// Finds two handlers of one consumer name.
    ///
    /// # Errors
    ///
    /// [`Error::ConsumerCollision`] for the first such pair.
    pub fn check(&self) -> Result<(), Error> {
        self.0.iter().try_for_each(|handler| handler.check())
    }

    /// A Markdown table of all handlers: commit it, and [compare it in a test](Self::compare_with_file), so that a change
    /// is seen in review. After a rename of its consumer or a change of its key a handler takes messages that it has
    /// processed for new ones.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut table = String::from(
            "| consumer | key | sender | sequence of | retention | horizon | options | function |\n\
             |---|---|---|---|---|---|---|---|\n",
        );
        for handler in &self.0 {
            let horizon = handler.horizon().map_or_else(String::new, in_words);
            let _ = writeln!(
                table,
                "| `{}` | {} | {} | {} | {} | {} | {} | `{}` |",
                handler.consumer().replace('|', "\\|"),
                code(handler.key()),
                code(handler.sender()),
                code(handler.entity().unwrap_or_default()),
                // Positions are never purged.
                if handler.key().is_empty() { String::new() } else { in_words(handler.retention()) },
                horizon,
                code(&handler.options()),
                handler.function(),
            );
        }
        table
    }
}

impl IntoIterator for Catalog {
    type Item = &'static Handler;
    type IntoIter = std::vec::IntoIter<&'static Handler>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// A cell of code; a template may hold `|` and `` ` ``.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`` {} ``", text.replace('|', "\\|")) }
}

/// In the largest unit up to days that needs no fraction, as the attribute and its default are mostly written.
fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
    units
        .iter()
        .find(|(unit, _)| seconds.is_multiple_of(*unit))
        .map_or_else(|| format!("{seconds}s"), |(unit, letter)| format!("{}{letter}", seconds / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_the_attribute_writes_them() {
        assert_eq!(
            [1, 90, 7_200, 259_200, 604_800].map(|s| in_words(Duration::from_secs(s))),
            ["1s", "90s", "2h", "3d", "7d"]
        );
    }
}
