//! Taking over what hand-written code has remembered.

mod copy;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use crate::Error;
use crate::catalog::Handler;
use crate::key::{Encoded, Writer};

pub(crate) use copy::adopt;

type Handlers = HashMap<&'static str, &'static Handler>;
type Split = Box<dyn Fn(&str) -> Option<Vec<String>> + Send + Sync>;

/// A table in which hand-written code has noted the messages that it has processed, and whose claims they become: see
/// [`ClaimStore::adopt`](crate::ClaimStore::adopt).
///
/// The table has a row for each message: an id (text, a whole number or a UUID), perhaps a consumer, perhaps a time.
/// All names are plain identifiers, written as the database stores them.
#[must_use = "nothing is adopted until it is passed to `ClaimStore::adopt`"]
pub struct Adoption {
    table: Cow<'static, str>,
    id: Cow<'static, str>,
    consumer: Option<Cow<'static, str>>,
    time: Option<Cow<'static, str>>,
    handler: Option<Cow<'static, str>>,
    renamed: Vec<(String, Option<String>)>,
    split: Option<Split>,
}

impl fmt::Debug for Adoption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, id, consumer, time, handler, renamed, split: _ } = self;
        f.debug_struct("Adoption")
            .field("table", table)
            .field("id", id)
            .field("consumer", consumer)
            .field("time", time)
            .field("handler", handler)
            .field("renamed", renamed)
            .finish_non_exhaustive()
    }
}

impl Adoption {
    /// Of this table, `name` or `schema.name`, with the ids in its column `id`. A view will do, where the ids have to be
    /// put together first, or where a name is no plain identifier.
    pub fn of_table(table: impl Into<Cow<'static, str>>) -> Self {
        Self {
            table: table.into(),
            id: Cow::Borrowed("id"),
            consumer: None,
            time: None,
            handler: None,
            renamed: Vec::new(),
            split: None,
        }
    }

    /// The column of the ids.
    pub fn id_column(mut self, column: impl Into<Cow<'static, str>>) -> Self {
        self.id = column.into();
        self
    }

    /// All rows become claims of the handler with this consumer name, which this program has to contain: its template
    /// decides how an id is stored, and its retention for how long. Adopt a table once for each handler that shared
    /// it.
    pub fn handler(mut self, consumer: impl Into<Cow<'static, str>>) -> Self {
        self.handler = Some(consumer.into());
        self
    }

    /// The column that says whose each row is: the name of a handler's consumer, unless it is
    /// [`renamed`](Adoption::renamed) or [`left_out`](Adoption::left_out).
    pub fn consumer_column(mut self, column: impl Into<Cow<'static, str>>) -> Self {
        self.consumer = Some(column.into());
        self
    }

    /// Rows of the old consumer become claims of the handler with the new consumer name.
    pub fn renamed(mut self, old: impl Into<String>, new: impl Into<String>) -> Self {
        self.renamed.push((old.into(), Some(new.into())));
        self
    }

    /// Rows of this old consumer are not adopted.
    pub fn left_out(mut self, old: impl Into<String>) -> Self {
        self.renamed.push((old.into(), None));
        self
    }

    /// The column of the time at which a message was processed, from which the handler's retention then counts. Without
    /// one, or where it is NULL, it counts from now, which is never too short.
    ///
    /// A time without a zone is taken for UTC, and a day is added, since it may be any zone's. On SQLite a whole number
    /// is seconds or milliseconds since 1970. Rows whose retention has been over for an hour are not adopted.
    pub fn time_column(mut self, column: impl Into<Cow<'static, str>>) -> Self {
        self.time = Some(column.into());
        self
    }

    /// Makes the texts of the placeholders from an old id: those of `key`, then those of `sender`, in the order of the
    /// templates. Needed unless they have one placeholder together, which the id then is. `None` ends the adoption
    /// with an error.
    ///
    /// ```
    /// # use idempotent_runtime::Adoption;
    /// // key = "{order.id}:{order.version}"; by hand it was `format!("{}-v{}", order.id, order.version)`
    /// let adoption = Adoption::of_table("processed_orders").handler("shop.ship").split(|id| {
    ///     let (order, version) = id.rsplit_once("-v")?;
    ///     Some(vec![order.to_owned(), version.to_owned()])
    /// });
    /// ```
    pub fn split(mut self, split: impl Fn(&str) -> Option<Vec<String>> + Send + Sync + 'static) -> Self {
        self.split = Some(Box::new(split));
        self
    }

    /// The handler whose claims the rows of an old consumer become; `None` if they are left out.
    fn handler_of(&self, old: Option<&str>, handlers: &Handlers) -> Result<Option<&'static Handler>, Error> {
        let consumer = match (old, &self.handler) {
            (_, Some(handler)) => Some(&**handler),
            (Some(old), None) => match self.renamed.iter().find(|(name, _)| name == old) {
                Some((_, new)) => new.as_deref(),
                None => Some(old),
            },
            (None, None) => return Err(refused("say whose claims the rows become: `handler` or `consumer_column`")),
        };
        let Some(consumer) = consumer else { return Ok(None) };
        let handler = handlers.get(consumer).ok_or_else(|| {
            refused(&format!(
                "no handler of this program has the consumer name `{consumer}`: give the right name (`handler`, `renamed`), \
                 or leave the rows out (`left_out`)"
            ))
        })?;
        handler.check()?;
        if handler.key().is_empty() {
            return Err(refused(&format!(
                "the handler `{consumer}` makes no claims, since its `sequence` stands alone: nothing can be adopted for it. \
                 What it has applied is told by the table of positions"
            )));
        }
        Ok(Some(*handler))
    }

    /// Sender and key as the handler's macro stores them; `None` for an id that it takes for missing.
    fn identify(&self, handler: &'static Handler, id: &str) -> Result<Option<(String, String)>, Error> {
        let (key, sender) = (&handler.spec().key, &handler.spec().sender);
        let wanted = key.placeholders() + sender.placeholders();
        let parts = match &self.split {
            None => vec![id.to_owned()],
            Some(split) => split(id).ok_or_else(|| refused(&format!("`split` makes nothing of the id {id:?}")))?,
        };
        if parts.len() != wanted {
            return Err(refused(&format!(
                "the templates of `{}` have {wanted} placeholders, and the id {id:?} has become {} texts: see `split`",
                handler.consumer(),
                parts.len()
            )));
        }
        let (of_key, of_sender) = parts.split_at(key.placeholders());
        let fill = |writer: Writer, parts: &[String]| {
            let encoded = parts.iter().fold(writer, |writer, part| writer.part("id", part)).finish();
            match encoded {
                Encoded::Stored(form) => Some(form.into_owned()),
                Encoded::Missing(_) | Encoded::None => None,
            }
        };
        let sender = fill(Writer::sender(handler), of_sender);
        Ok(sender.zip(fill(Writer::key(handler), of_key)))
    }
}

fn refused(what: &str) -> Error {
    Error::Configuration(what.to_owned())
}

/// What an adoption has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adopted {
    /// Rows of the old table.
    pub read: u64,
    /// Rows that have become claims now.
    pub copied: u64,
    /// Rows that had a claim already.
    pub present: u64,
    /// Rows whose retention is over.
    pub expired: u64,
    /// Rows whose id is NULL, empty or blank, which no handler takes for one, or whose consumer is NULL.
    pub blank: u64,
    /// Rows of a consumer that is left out.
    pub left_out: u64,
}
