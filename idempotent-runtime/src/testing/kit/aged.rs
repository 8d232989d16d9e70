//! Deliveries after the retention.

use std::fmt;

use crate::Database;
use crate::purge::PurgeOptions;
use crate::testing::delivered::{Delivered, Ended};
use crate::testing::verdicts::{not_processed, not_recognised, nothing, still_recognised};
use crate::testing::{Failure, Inspect, Kit};

/// What became of a message whose claim had expired and was purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Aged {
    /// It was taken for new: a redelivery later than the retention has a second effect. `occurred_at` prevents that.
    RunsAgain,
    /// It was too old by its own timestamp.
    Expired,
    /// Its position in a `sequence`, which is never purged, tells that it was applied.
    Stale,
    /// It was taken for new, and failed: at a unique key of the application's own, if all is well.
    Fails,
}

impl<DB: Database + Inspect> Kit<DB> {
    /// Makes every claim of the store expire. A message whose claim has expired and is still there has to be recognised.
    /// Then purges them all, and says what becomes of it: that tells what a redelivery later than the retention does.
    ///
    /// With [`occurred_at`](crate#late-redeliveries), give messages that are older than the retention, which are expired
    /// from the start, or expect [`Aged::RunsAgain`]: only the claim ages here, not the message.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that says what the delivery came to.
    pub async fn aged<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<Aged, Failure> {
        let message = self.next::<D>();
        match self.deliver(&deliver, message).await? {
            (Ended::Processed(_), _) => {}
            (Ended::Expired(_), _) => return Ok(Aged::Expired),
            (ended, notes) => return Err(not_processed(message, &ended, notes.lost.as_ref())),
        }
        self.expire().await?;
        let before = self.state().await?;
        let (again, _) = self.deliver(&deliver, message).await?;
        if !again.is_recognised() {
            return Err(not_recognised(message, &again, None, None));
        }
        let after = self.state().await?;
        nothing(&before, &after, format_args!("a delivery of {message}, whose claim is past its expiry,"))?;
        self.store.purge(PurgeOptions::new().margin(std::time::Duration::ZERO)).await?;
        self.forget_seen();
        match self.deliver(&deliver, message).await?.0 {
            Ended::Processed(_) => Ok(Aged::RunsAgain),
            Ended::Stale(_) => Ok(Aged::Stale),
            Ended::Expired(_) => Ok(Aged::Expired),
            Ended::Failed(_) => Ok(Aged::Fails),
            other => Err(still_recognised(message, &other)),
        }
    }

    /// Moves the expiry of every claim of the store into the past, without purging it, and empties the store's seen cache,
    /// which would answer without asking for the claim.
    ///
    /// # Errors
    ///
    /// A [`Failure`] if the database fails.
    pub async fn expire(&self) -> Result<(), Failure> {
        DB::age(&mut *self.store.pool().acquire().await?, self.store.statements()).await?;
        self.forget_seen();
        Ok(())
    }

    fn forget_seen(&self) {
        if let Some(seen) = &self.store.settings().seen {
            seen.clear();
        }
    }
}
