//! What a history consists of, and what each of its steps must come to: a short model without a database.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::select;

/// What the body of a delivery does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Body {
    Succeed,
    /// Returns an error after its effect.
    Fail,
    Panic,
    /// The future is dropped after so many polls, and the message delivered again.
    Cancel(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Age {
    Recent,
    TooOld,
    Ahead,
}

/// How a caller ends its transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Commit,
    RollBack,
    Drop,
}

/// One message, to one of the handlers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Message {
    Plain {
        id: u8,
    },
    Dated {
        id: u8,
        age: Age,
    },
    Versioned {
        id: u8,
        entity: u8,
        number: i64,
    },
    Offset {
        entity: u8,
        number: i64,
    },
    Answered {
        id: u8,
        content: u8,
    },
    /// Of a batch, with all that a handler of batches judges.
    Item {
        id: u8,
        age: Age,
        entity: u8,
        number: i64,
    },
}

/// What is delivered together: one message, or the items of a batch.
pub(crate) type Delivery = Vec<Message>;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Deliver(Delivery, Body),
    /// Several in a transaction of the caller's, and whether each succeeds.
    Join(Vec<(Delivery, bool)>, End),
    Forget(Message),
    /// Its claim is past its expiry and the margin from now on.
    Expire(Message),
    Purge,
    /// The process starts anew: another pool, an empty cache.
    Restart,
}

/// How a delivery ends for a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ending {
    Processed,
    Replayed(u8),
    Duplicate,
    Stale,
    Expired,
    InTheFuture,
    Mismatch,
    /// By the body's own error.
    Failed,
    Panicked,
}

fn message() -> impl Strategy<Value = Message> {
    let id = || 0..3_u8;
    prop_oneof![
        4 => id().prop_map(|id| Message::Plain { id }),
        2 => (id(), select(vec![Age::Recent, Age::TooOld, Age::Ahead])).prop_map(|(id, age)| Message::Dated { id, age }),
        2 => (id(), 0..2_u8, 0..4_i64).prop_map(|(id, entity, number)| Message::Versioned { id, entity, number }),
        2 => (0..2_u8, 0..5_i64).prop_map(|(entity, number)| Message::Offset { entity, number }),
        2 => (id(), 0..2_u8).prop_map(|(id, content)| Message::Answered { id, content }),
        2 => item(),
    ]
}

fn item() -> impl Strategy<Value = Message> {
    let age = prop_oneof![12 => Just(Age::Recent), 3 => Just(Age::TooOld), 1 => Just(Age::Ahead)];
    (0..5_u8, age, 0..2_u8, 0..6_i64).prop_map(|(id, age, entity, number)| Message::Item { id, age, entity, number })
}

fn delivery() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        3 => message().prop_map(|message| vec![message]),
        1 => prop::collection::vec(item(), 0..7),
    ]
}

pub(crate) fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        6 => Just(Body::Succeed),
        2 => Just(Body::Fail),
        1 => Just(Body::Panic),
        3 => (1..40_usize).prop_map(Body::Cancel),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let some = prop::collection::vec((delivery(), any::<bool>()), 1..4);
    let end = select(vec![End::Commit, End::Commit, End::RollBack, End::Drop]);
    prop_oneof![
        12 => (delivery(), body()).prop_map(|(delivery, body)| Step::Deliver(delivery, body)),
        3 => (some, end).prop_map(|(deliveries, end)| Step::Join(deliveries, end)),
        2 => message().prop_map(Step::Forget),
        2 => message().prop_map(Step::Expire),
        1 => Just(Step::Purge),
        1 => Just(Step::Restart),
    ]
}

impl Message {
    /// The handler's consumer name, and the stored key, if it has one.
    pub(crate) fn claim(self) -> Option<(&'static str, String)> {
        match self {
            Self::Plain { id } => Some(("histories.plain", id.to_string())),
            Self::Dated { id, .. } => Some(("histories.dated", id.to_string())),
            Self::Versioned { id, .. } => Some(("histories.versioned", id.to_string())),
            Self::Answered { id, .. } => Some(("histories.answered", id.to_string())),
            Self::Item { id, .. } => Some(("histories.items", id.to_string())),
            Self::Offset { .. } => None,
        }
    }

    pub(crate) fn position(self) -> Option<(&'static str, String, i64)> {
        match self {
            Self::Versioned { entity, number, .. } => Some(("histories.versioned", entity.to_string(), number)),
            Self::Offset { entity, number } => Some(("histories.offset", entity.to_string(), number)),
            Self::Item { entity, number, .. } => Some(("histories.items", entity.to_string(), number)),
            _ => None,
        }
    }

    /// The row that its body inserts.
    pub(crate) fn effect(self) -> String {
        match self {
            Self::Plain { id } => format!("plain-{id}"),
            Self::Dated { id, .. } => format!("dated-{id}"),
            Self::Versioned { entity, number, .. } => format!("versioned-{entity}-{number}"),
            Self::Offset { entity, number } => format!("offset-{entity}-{number}"),
            Self::Answered { id, .. } => format!("answered-{id}"),
            Self::Item { id, entity, number, .. } => format!("item-{id}-{entity}-{number}"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Claim {
    content: u8,
    expired: bool,
}

/// What must be in the database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    claims: BTreeMap<(&'static str, String), Claim>,
    pub(crate) positions: BTreeMap<(&'static str, String), i64>,
    pub(crate) effects: BTreeMap<String, i64>,
    /// What the cache holds, if there is one.
    seen: Option<BTreeSet<(&'static str, String)>>,
}

impl Oracle {
    pub(crate) fn new(with_cache: bool) -> Self {
        Self { seen: with_cache.then(BTreeSet::new), ..Self::default() }
    }

    /// What comes of a delivery whose body does this, for each of its messages. A cancelled one counts as the delivery
    /// after it. A batch comes to what its items would come to one after the other, all of them or none.
    pub(crate) fn deliver(&mut self, delivery: &[Message], body: Body, joined: bool) -> Vec<Ending> {
        let mut afterwards = self.clone();
        let endings: Vec<Ending> = delivery.iter().map(|message| afterwards.take(*message, joined)).collect();
        let failure = if endings.contains(&Ending::InTheFuture) {
            Some(Ending::InTheFuture)
        } else if endings.contains(&Ending::Processed) {
            match body {
                Body::Succeed | Body::Cancel(_) => None,
                Body::Fail => Some(Ending::Failed),
                Body::Panic => Some(Ending::Panicked),
            }
        } else {
            None
        };
        if let Some(failure) = failure {
            return vec![failure; delivery.len()];
        }
        *self = afterwards;
        endings
    }

    /// The same for one message whose body succeeds.
    fn take(&mut self, message: Message, joined: bool) -> Ending {
        let claim = message.claim();
        let cacheable = !joined && !matches!(message, Message::Answered { .. } | Message::Item { .. });
        let cached = |oracle: &Self| {
            cacheable
                && claim.as_ref().is_some_and(|claim| oracle.seen.as_ref().is_some_and(|seen| seen.contains(claim)))
        };
        if cached(self) {
            return Ending::Duplicate;
        }
        let ending = self.judge(message).unwrap_or(Ending::Processed);
        if ending == Ending::Processed {
            if let (Some(claim), content) = (&claim, message.content()) {
                self.claims.insert(claim.clone(), Claim { content, expired: false });
            }
            if let Some((consumer, entity, number)) = message.position() {
                self.positions.insert((consumer, entity), number);
            }
            *self.effects.entry(message.effect()).or_default() += 1;
        }
        if let (true, Some(seen), Some(claim), Ending::Processed | Ending::Duplicate) =
            (cacheable, &mut self.seen, claim, &ending)
        {
            seen.insert(claim);
        }
        ending
    }

    /// Why the body does not run, in the order in which it is decided.
    fn judge(&self, message: Message) -> Option<Ending> {
        if let Some(claim) = message.claim().and_then(|claim| self.claims.get(&claim)) {
            return Some(match message {
                Message::Answered { content, .. } if content != claim.content => Ending::Mismatch,
                Message::Answered { .. } => Ending::Replayed(claim.content),
                _ => Ending::Duplicate,
            });
        }
        match message {
            Message::Dated { age: Age::TooOld, .. } | Message::Item { age: Age::TooOld, .. } => {
                return Some(Ending::Expired);
            }
            Message::Dated { age: Age::Ahead, .. } | Message::Item { age: Age::Ahead, .. } => {
                return Some(Ending::InTheFuture);
            }
            _ => {}
        }
        let (consumer, entity, number) = message.position()?;
        (self.positions.get(&(consumer, entity))? >= &number).then_some(Ending::Stale)
    }

    /// Whether it had a claim.
    pub(crate) fn forget(&mut self, message: Message) -> bool {
        let Some(claim) = message.claim() else { return false };
        if let Some(seen) = &mut self.seen {
            seen.remove(&claim);
        }
        self.claims.remove(&claim).is_some()
    }

    pub(crate) fn expire(&mut self, message: Message) {
        if let Some(claim) = message.claim().and_then(|claim| self.claims.get_mut(&claim)) {
            claim.expired = true;
        }
    }

    /// How many are deleted.
    pub(crate) fn purge(&mut self) -> u64 {
        let before = self.claims.len();
        self.claims.retain(|_, claim| !claim.expired);
        (before - self.claims.len()).try_into().expect("a few")
    }

    pub(crate) fn restart(&mut self) {
        if let Some(seen) = &mut self.seen {
            seen.clear();
        }
    }

    pub(crate) fn claims(&self) -> Vec<(String, String)> {
        self.claims.keys().map(|(consumer, key)| ((*consumer).to_owned(), key.clone())).collect()
    }
}

impl Message {
    pub(crate) const fn content(self) -> u8 {
        if let Self::Answered { content, .. } = self { content } else { 0 }
    }
}
