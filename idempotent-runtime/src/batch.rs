//! Batches: many messages claimed together, of which the body gets those that are fresh.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::__private::HandlerError;
use crate::catalog::{Handler, IfExpired};
use crate::claim::Claim;
use crate::database::{Admission, Bulk, Verdict};
use crate::message::Message;
use crate::outcome::{Expired, Identity, InProgress, OccurredInFuture};
use crate::process::{Refusal, Refused, Work, to_caller};
use crate::seen::Memory;
use crate::store::Settings;
use crate::{Error, observe};

/// What one delivery of a batch led to. Returned in `Ok`, it means: acknowledge all of its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "taken apart by whoever answers for its items")]
pub struct Batch<T> {
    /// What the body returned; nothing if no item was fresh, since then it did not run.
    pub output: Option<T>,
    /// What each item led to, in the order in which they were passed.
    pub outcomes: Vec<ItemOutcome>,
}

impl<T> Batch<T> {
    /// How many items had this outcome.
    #[must_use]
    pub fn count(&self, of: ItemOutcome) -> usize {
        self.outcomes.iter().filter(|outcome| **outcome == of).count()
    }
}

/// What one item of a batch led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "whoever answers for an item has to have an answer for every case")]
pub enum ItemOutcome {
    /// The body has had it, and claim and effect are committed together.
    Processed,
    /// An earlier delivery has processed it, or an earlier item of this batch is the same message.
    Duplicate,
    /// A newer message of its entity was applied before, or comes earlier in this batch.
    Stale,
    /// It is older than the retention; with `expired = "skip"`.
    Expired,
}

impl ItemOutcome {
    /// `"processed"`, `"duplicate"`, `"stale"` or `"expired"`: for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Duplicate => "duplicate",
            Self::Stale => "stale",
            Self::Expired => "expired",
        }
    }
}

/// The messages of one delivery of a batch.
#[derive(Debug)]
pub struct Messages {
    pub(crate) handler: &'static Handler,
    pub(crate) items: Vec<Message>,
    /// What is wrong with the first bad one: then no SQL is run.
    pub(crate) refusal: Option<Error>,
}

impl Messages {
    /// Room for so many messages of this handler.
    #[must_use]
    pub fn new(handler: &'static Handler, items: usize) -> Self {
        Self { handler, items: Vec::with_capacity(items), refusal: None }
    }

    /// The next message.
    pub fn push(&mut self, mut message: Message) {
        if let Some(error) = message.refusal.take() {
            self.refusal.get_or_insert(error.of_item(self.items.len()));
        }
        self.items.push(message);
    }

    /// The claims of the fresh ones, in order.
    pub(crate) fn claims(&self, outcomes: &[ItemOutcome]) -> Vec<Claim> {
        let fresh = |(item, outcome): (&Message, &ItemOutcome)| {
            item.claim.clone().filter(|_| *outcome == ItemOutcome::Processed)
        };
        self.items.iter().zip(outcomes).filter_map(fresh).collect()
    }

    /// Logs and counts what became of each item.
    pub(crate) fn observe(&self, outcomes: &[ItemOutcome]) {
        for (item, outcome) in self.items.iter().zip(outcomes) {
            match (outcome, &item.position) {
                (ItemOutcome::Processed, _) => item.observe_processed(),
                (ItemOutcome::Duplicate, _) => observe::duplicate(&item.identity()),
                (ItemOutcome::Expired, _) => observe::expired(&item.identity()),
                (ItemOutcome::Stale, Some(position)) => observe::stale(position),
                (ItemOutcome::Stale, None) => {}
            }
        }
    }
}

/// The claim of one item, without its consumer, which is that of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Row<'a> {
    pub(crate) sender: &'a str,
    /// The key, or the entity.
    pub(crate) name: &'a str,
}

impl<'a> Row<'a> {
    fn of_claim(Identity { sender, key, .. }: &'a Identity) -> Self {
        Self { sender, name: key }
    }
}

/// Admits all messages of a batch in the transaction that is open, or none. What is locked is locked in the order of
/// its key, whatever the order in the batch, so that two batches wait for each other and never both. With the verdict
/// comes the id of the transaction, where the claims have told it.
pub(crate) async fn admit<DB: Bulk>(
    connection: &mut DB::Connection,
    admission: Admission<'_>,
    messages: &[Message],
) -> Result<(Verdict, Option<i64>), sqlx::Error> {
    let mut transaction = None;
    let verdict = judge::<DB>(connection, admission, messages, &mut transaction).await?;
    Ok((verdict, transaction))
}

async fn judge<DB: Bulk>(
    connection: &mut DB::Connection,
    admission: Admission<'_>,
    messages: &[Message],
    transaction: &mut Option<i64>,
) -> Result<Verdict, sqlx::Error> {
    let Some(first) = messages.first() else { return Ok(Verdict::NoneFresh(Vec::new())) };
    let consumer = first.handler.consumer();

    // One for equal keys, which lives as long as the latest of them: which one is processed is judged below.
    let mut claims: BTreeMap<Row<'_>, Option<i64>> = BTreeMap::new();
    for message in messages {
        if let Some(Claim(identity)) = &message.claim {
            let expires = message.occurred.map(|occurred| occurred.expires);
            let latest = claims.entry(Row::of_claim(identity)).or_default();
            *latest = expires.max(*latest);
        }
    }
    let claims: Vec<(Row<'_>, Option<i64>)> = claims.into_iter().collect();
    let new: HashSet<Row<'_>> = if claims.is_empty() {
        HashSet::new()
    } else {
        let claimed = DB::claim_all(connection, admission, consumer, &claims).await?;
        *transaction = claimed.transaction;
        claimed.indexes.into_iter().map(|index| claims[index].0).collect()
    };

    // After the inserts, so that a purge which has deleted an older claim is over (G10).
    let dated = messages.iter().any(|message| message.occurred.is_some());
    let now = if dated { DB::now(connection).await? } else { 0 };
    let skips = first.handler.spec().if_expired == IfExpired::Skip;

    let is_new = |message: &Message| match &message.claim {
        Some(Claim(identity)) => new.contains(&Row::of_claim(identity)),
        None => true,
    };
    let candidates = messages.iter().filter(|message| is_new(message));
    let mut entities: Vec<Row<'_>> = candidates
        .filter_map(|message| message.position.as_ref())
        .map(|position| Row { sender: &position.sender, name: &position.entity })
        .collect();
    entities.sort_unstable();
    entities.dedup();
    let mut positions: HashMap<Row<'_>, Option<i64>> = HashMap::new();
    if !entities.is_empty() {
        let stored = DB::positions(connection, admission, consumer, &entities).await?;
        positions.extend(entities.iter().copied().zip(stored));
    }

    let mut outcomes = Vec::with_capacity(messages.len());
    let mut taken: HashSet<Row<'_>> = HashSet::new();
    let mut advanced: BTreeMap<Row<'_>, i64> = BTreeMap::new();
    for (index, message) in messages.iter().enumerate() {
        let claim = message.claim.as_ref().map(|Claim(identity)| Row::of_claim(identity));
        if claim.is_some_and(|claim| !new.contains(&claim) || taken.contains(&claim)) {
            outcomes.push(ItemOutcome::Duplicate);
            continue;
        }
        if let Some(occurred) = message.occurred {
            if occurred.expires <= now {
                if !skips {
                    return Ok(Verdict::Expired(index));
                }
                outcomes.push(ItemOutcome::Expired);
                continue;
            }
            if occurred.at > now.saturating_add(DAY_MICROS) {
                return Ok(Verdict::Ahead(index));
            }
        }
        if let Some(position) = &message.position {
            let entity = Row { sender: &position.sender, name: &position.entity };
            let applied = positions.entry(entity).or_default();
            if applied.is_some_and(|applied| applied >= position.number) {
                outcomes.push(ItemOutcome::Stale);
                continue;
            }
            *applied = Some(position.number);
            advanced.insert(entity, position.number);
        }
        taken.extend(claim);
        outcomes.push(ItemOutcome::Processed);
    }

    if !outcomes.contains(&ItemOutcome::Processed) {
        return Ok(Verdict::NoneFresh(outcomes));
    }
    let unused: Vec<Row<'_>> =
        claims.iter().map(|(row, _)| *row).filter(|row| new.contains(row) && !taken.contains(row)).collect();
    if !unused.is_empty() {
        DB::forget_all(connection, admission, consumer, &unused).await?;
    }
    if !advanced.is_empty() {
        let advanced: Vec<(Row<'_>, i64)> = advanced.into_iter().collect();
        if !DB::advance_all(connection, admission, consumer, &advanced).await? {
            // Somebody has made an entity that was not there to be locked.
            return Ok(Verdict::Conflict);
        }
    }
    Ok(Verdict::New(outcomes))
}

const DAY_MICROS: i64 = 86_400_000_000;

#[expect(private_interfaces, reason = "sealed: not part of the public interface")]
impl Work for Messages {
    fn handler(&self) -> &'static Handler {
        self.handler
    }

    fn take_refusal(&mut self) -> Option<Error> {
        self.refusal.take()
    }

    fn admission<'a>(&'a self, settings: &'a Settings) -> Admission<'a> {
        Admission { batch: Some(&self.items), ..Admission::of(self.handler, settings) }
    }

    fn span(&self) -> tracing::Span {
        let consumer = self.handler.consumer();
        observe::batch(consumer, self.items.len())
    }

    /// Of a message of the batch: nobody knows of which.
    fn identity(&self) -> Identity {
        Identity { consumer: self.handler.consumer().into(), sender: Cow::Borrowed(""), key: Cow::Borrowed("") }
    }

    fn cached<'a>(&'a self, _settings: &'a Settings) -> Option<Memory<'a>> {
        None
    }

    type Settled = Result<Vec<ItemOutcome>, Error>;

    fn failed(error: Error) -> Self::Settled {
        Err(error)
    }

    fn judged(&self, verdict: Verdict) -> Result<Vec<ItemOutcome>, Error> {
        let identity = |index: usize| self.items.get(index).map_or_else(|| self.identity(), Message::identity);
        match verdict {
            Verdict::New(outcomes) | Verdict::NoneFresh(outcomes) => {
                self.observe(&outcomes);
                Ok(outcomes)
            }
            Verdict::Expired(index) => {
                observe::expired(&identity(index));
                Err(Error::Expired(Expired(identity(index))))
            }
            Verdict::Ahead(index) => Err(Error::OccurredInFuture(OccurredInFuture(identity(index)))),
            Verdict::Conflict | Verdict::Duplicate | Verdict::Stale => {
                Err(Error::InProgress(InProgress(self.identity())))
            }
        }
    }
}

impl Refused<Result<Vec<ItemOutcome>, Error>> {
    /// What a handler returns whose body is not to run.
    ///
    /// # Errors
    ///
    /// It is not settled yet.
    pub fn settled<T, E: HandlerError>(self) -> Result<Result<Batch<T>, E>, Refusal> {
        let (settled, consumer) = match self {
            Self::Settled(settled, consumer) => (settled, consumer),
            Self::Yet(refusal) => return Err(refusal),
        };
        Ok(match settled {
            Ok(outcomes) => Ok(Batch { output: None, outcomes }),
            Err(error) => Err(to_caller(consumer, error)),
        })
    }
}
