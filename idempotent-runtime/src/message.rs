//! What one delivery is about, and what the database's verdict on it means.

use std::borrow::Cow;

use crate::__private::HandlerError;
use crate::catalog::{Handler, IfExpired, Missing};
use crate::claim::Claim;
use crate::database::{Admission, NewClaim, Occurred, Recalled, Verdict};
use crate::key::{self, Encoded, Fingerprint, Writer};
use crate::outcome::{Duplicate, Expired, FingerprintMismatch, Identity, InProgress, OccurredInFuture};
use crate::process::{Refusal, Refused, Work, to_caller};
use crate::replay::{Replay, StoredValue};
use crate::seen::Memory;
use crate::sequence::{Position, SequenceNumber, Stale};
use crate::store::Settings;
use crate::timestamp::Timestamp;
use crate::{Error, Outcome, observe};

impl Writer {
    /// Writes the key of a message.
    #[must_use]
    pub fn key(handler: &'static Handler) -> Self {
        Self::new(&handler.spec().key, key::MAX_KEY)
    }

    /// Writes the sender of a message.
    #[must_use]
    pub fn sender(handler: &'static Handler) -> Self {
        Self::new(&handler.spec().sender, key::MAX_SENDER)
    }

    /// Writes the entity whose order a message is in.
    #[must_use]
    pub fn entity(handler: &'static Handler) -> Self {
        Self::new(&handler.spec().entity, key::MAX_KEY)
    }

    /// Writes what the key of a message stands for.
    #[must_use]
    pub fn fingerprint(handler: &'static Handler) -> Self {
        Self::new(&handler.spec().fingerprint, usize::MAX)
    }
}

/// What one delivery is about: everything that is known before any SQL.
#[derive(Debug)]
pub struct Message {
    pub(crate) handler: &'static Handler,
    pub(crate) claim: Option<Claim>,
    pub(crate) position: Option<Position>,
    /// Why it is not even tried.
    pub(crate) refusal: Option<Error>,
    pub(crate) occurred: Option<Occurred>,
    sender: Cow<'static, str>,
    fingerprint: Option<Fingerprint>,
}

impl Message {
    /// A message of this handler. What is wrong with it comes out when the session begins.
    #[must_use]
    pub fn new(handler: &'static Handler, key: Encoded, sender: Encoded) -> Self {
        let mut message = Self {
            handler,
            claim: None,
            position: None,
            refusal: handler.check().err(),
            sender: Cow::Borrowed(""),
            fingerprint: None,
            occurred: None,
        };
        match (key, sender, handler.spec().missing) {
            (Encoded::Missing(part), _, Missing::Reject) | (_, Encoded::Missing(part), Missing::Reject) => {
                message.refuse(Error::missing_key(handler.consumer(), part));
            }
            (key, Encoded::Stored(sender), _) => {
                message.sender.clone_from(&sender);
                if let Encoded::Stored(key) = key {
                    message.claim = Some(Claim(Identity { consumer: handler.consumer().into(), sender, key }));
                }
            }
            (_, Encoded::Missing(_) | Encoded::None, _) => {}
        }
        message
    }

    /// It occurred then.
    #[must_use]
    pub fn occurred_at<T: Timestamp + ?Sized>(mut self, at: &T) -> Self {
        self.occurred = Some(Occurred::new(at.unix_nanos(), self.handler.retention()));
        self
    }

    /// It has this place in the order of this entity.
    #[must_use]
    pub fn sequence<N: SequenceNumber + ?Sized>(self, entity: Encoded, number: &N) -> Self {
        self.in_order(entity, number.sequence_number())
    }

    fn in_order(mut self, entity: Encoded, number: Option<i64>) -> Self {
        let consumer = self.handler.consumer();
        match (entity, number, self.handler.spec().missing) {
            (Encoded::Stored(entity), Some(number), _) => {
                self.position = Some(Position { consumer, sender: self.sender.clone(), entity, number });
            }
            (Encoded::Stored(entity), None, _) => {
                self.refuse(Error::NumberOutOfRange { consumer, entity: entity.into_owned(), index: None });
            }
            (Encoded::Missing(part), _, Missing::Reject) => self.refuse(Error::missing_key(consumer, part)),
            (Encoded::Missing(_) | Encoded::None, ..) => {}
        }
        self
    }

    /// It says this.
    #[must_use]
    pub const fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// The first thing that is wrong is the one that is told.
    fn refuse(&mut self, error: Error) {
        self.refusal.get_or_insert(error);
    }

    /// Of a message without a claim, as much as is known.
    pub(crate) fn identity(&self) -> Identity {
        match (&self.claim, &self.position) {
            (Some(Claim(identity)), _) => identity.clone(),
            (None, position) => Identity {
                consumer: self.handler.consumer().into(),
                sender: self.sender.clone(),
                key: position.as_ref().map_or(Cow::Borrowed(""), |position| position.entity.clone()),
            },
        }
    }

    /// Counts that its body has run and was committed.
    pub(crate) fn observe_processed(&self) {
        match (&self.claim, &self.position) {
            (None, None) => observe::unclaimed(self.handler.consumer()),
            _ => observe::processed(self.handler.consumer(), &self.sender),
        }
    }
}

/// How a delivery ends without its body.
pub enum Settled {
    /// An earlier delivery did the work.
    Duplicate(Duplicate),
    /// An earlier delivery did the work, and this is what it returned.
    Replayed(StoredValue),
    /// A newer message was applied.
    Stale(Stale),
    /// It is too old to tell.
    Expired(Expired),
    /// It failed.
    Failed(Error),
}

impl Refused<Settled> {
    /// What a handler returns whose body is not to run.
    ///
    /// # Errors
    ///
    /// It is not settled yet.
    pub fn settled<T, E: HandlerError>(self) -> Result<Result<Outcome<T>, E>, Refusal> {
        self.settled_or_replayed(None)
    }

    /// The same for a handler with `replay`.
    ///
    /// # Errors
    ///
    /// It is not settled yet.
    pub fn settled_or_replayed<T, E: HandlerError>(
        self,
        replay: Option<Replay<T>>,
    ) -> Result<Result<Outcome<T>, E>, Refusal> {
        let (settled, consumer) = match self {
            Self::Settled(settled, consumer) => (settled, consumer),
            Self::Yet(refusal) => return Err(refusal),
        };
        Ok(match (settled, replay) {
            (Settled::Replayed(StoredValue(stored)), Some(replay)) => match (replay.from_stored)(&stored) {
                Ok(value) => Ok(Outcome::Replayed(value)),
                Err(error) => Err(to_caller(consumer, Error::Replay(error))),
            },
            (Settled::Replayed(_), None) => unreachable!("only a handler with `replay` asks for stored values"),
            (Settled::Duplicate(duplicate), _) => Ok(Outcome::Duplicate(duplicate)),
            (Settled::Stale(stale), _) => Ok(Outcome::Stale(stale)),
            (Settled::Expired(expired), _) => Ok(Outcome::Expired(expired)),
            (Settled::Failed(error), _) => Err(to_caller(consumer, error)),
        })
    }
}

#[expect(private_interfaces, reason = "sealed: not part of the public interface")]
impl Work for Message {
    fn handler(&self) -> &'static Handler {
        self.handler
    }

    fn take_refusal(&mut self) -> Option<Error> {
        self.refusal.take()
    }

    fn admission<'a>(&'a self, settings: &'a Settings) -> Admission<'a> {
        Admission {
            claim: self
                .claim
                .as_ref()
                .map(|claim| NewClaim { identity: &claim.0, fingerprint: self.fingerprint.as_ref() }),
            occurred: self.occurred,
            position: self.position.as_ref(),
            ..Admission::of(self.handler, settings)
        }
    }

    fn span(&self) -> tracing::Span {
        observe::message(self)
    }

    fn identity(&self) -> Identity {
        self.identity()
    }

    fn cached<'a>(&'a self, settings: &'a Settings) -> Option<Memory<'a>> {
        let seen = settings.seen.as_ref().filter(|_| !self.recalls())?;
        Some(seen.of(&self.claim.as_ref()?.0))
    }

    type Settled = Settled;

    fn failed(error: Error) -> Settled {
        Settled::Failed(error)
    }

    fn judged(&self, verdict: Verdict) -> Settled {
        let identity = self.identity();
        match (verdict, &self.position) {
            (Verdict::Stale, Some(position)) => {
                observe::stale(position);
                Settled::Stale(Stale(position.clone()))
            }
            (Verdict::Expired(_), _) => {
                observe::expired(&identity);
                match self.handler.spec().if_expired {
                    IfExpired::Skip => Settled::Expired(Expired(identity)),
                    IfExpired::Fail => Settled::Failed(Error::Expired(Expired(identity))),
                }
            }
            (Verdict::Ahead(_), _) => Settled::Failed(Error::OccurredInFuture(OccurredInFuture(identity))),
            (Verdict::Conflict, _) => Settled::Failed(Error::InProgress(InProgress(identity))),
            (Verdict::Duplicate | Verdict::Stale | Verdict::New(_) | Verdict::NoneFresh(_), _) => {
                observe::duplicate(&identity);
                Settled::Duplicate(Duplicate(identity))
            }
        }
    }

    fn recalled(&self, identity: Identity, Recalled { fingerprint, value }: Recalled) -> Settled {
        let differs = |stored: &[u8]| self.fingerprint.as_ref().is_some_and(|own| key::contradicts(own, stored));
        if fingerprint.as_deref().is_some_and(differs) {
            observe::mismatch(&identity);
            return Settled::Failed(Error::FingerprintMismatch(FingerprintMismatch(identity)));
        }
        match value {
            Some(value) if self.handler.spec().replay => {
                observe::replayed(&identity);
                Settled::Replayed(value)
            }
            _ => {
                observe::duplicate(&identity);
                Settled::Duplicate(Duplicate(identity))
            }
        }
    }

    fn recalls(&self) -> bool {
        self.fingerprint.is_some() || self.handler.spec().replay
    }
}
