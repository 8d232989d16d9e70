//! What handlers send.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a test's fake client was asked to send: mails, HTTP requests, messages to a broker.
///
/// Give it to the fake, and to the kit with [`Kit::recorder`](super::Kit::recorder). Cloning it gives another handle on
/// the same record.
///
/// ```
/// use idempotent_runtime::testing::Recorder;
///
/// struct FakeMailer(Recorder);
///
/// impl FakeMailer {
///     async fn mail(&self, to: &str) {
///         self.0.send(format!("mail to {to}")).await;
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Mutex<Vec<Sent>>>);

#[derive(Debug)]
struct Sent {
    what: String,
    /// Whoever receives it does it once for each.
    key: Option<String>,
}

impl Recorder {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records what is sent. Prefer [`send`](Self::send) where the fake is async.
    pub fn record(&self, what: impl Into<String>) {
        self.sent().push(Sent { what: what.into(), key: None });
    }

    /// Records what is sent together with [`Claim::idempotency_key`](crate::Claim::idempotency_key), to a system that takes
    /// such keys: it may be sent again, and before the commit, and counts once for each key.
    pub fn record_with_key(&self, key: impl Into<String>, what: impl Into<String>) {
        self.sent().push(Sent { what: what.into(), key: Some(key.into()) });
    }

    /// Records what is sent, and then awaits once, as a client that waits for a reply does. So
    /// [`Kit::interrupted`](super::Kit::interrupted) can break the delivery off at that point.
    pub async fn send(&self, what: impl Into<String>) {
        self.record(what);
        let mut waited = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut waited, true) {
                return std::task::Poll::Ready(());
            }
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
    }

    /// Everything that was recorded, in order.
    #[must_use]
    pub fn entries(&self) -> Vec<String> {
        self.sent().iter().map(|sent| sent.what.clone()).collect()
    }

    /// How much cannot be taken back, and how much arrives in all.
    pub(super) fn counts(&self) -> Counts {
        let sent = self.sent();
        let plain = sent.iter().filter(|sent| sent.key.is_none()).count();
        let keys: HashSet<_> = sent.iter().filter_map(|sent| sent.key.as_deref()).collect();
        Counts { plain, arrived: plain + keys.len() }
    }

    fn sent(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Sent without a key.
    pub(super) plain: usize,
    /// Each key counted once.
    pub(super) arrived: usize,
}
