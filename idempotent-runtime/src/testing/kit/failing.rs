//! Deliveries that fail.

use std::fmt;

use crate::Database;
use crate::testing::delivered::{Delivered, Ended};
use crate::testing::notes::Watched;
use crate::testing::verdicts::{self, not_processed, not_processed_again, nothing, one_effect};
use crate::testing::{Failure, Inspect, Kit};

/// What PostgreSQL answers to the statement after one that has failed, found in the text of whatever type the error has.
const IN_FAILED_TRANSACTION: &str = "25P02";
/// A delivery that commits more often than this is let fail at the first of these commits only.
const MOST_COMMITS: usize = 20;

impl<DB: Database + Inspect> Kit<DB> {
    /// Lets the write to one table after another fail in the middle of a delivery: to each table that a delivery changes. The
    /// delivery has to fail, to change nothing and to send nothing. A redelivery, when writes succeed again, does the work.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that names the table that refused the write.
    pub async fn refused<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<(), Failure> {
        let effect = self.effect(&deliver).await?;
        let [tables, _] = self.tables().await?;
        for table in tables.into_iter().filter(|table| effect.tables.contains(&table.shown())) {
            let shown = table.shown();
            let message = self.next::<D>();
            let before = self.state().await?;
            DB::refuse(&mut *self.store.pool().acquire().await?, &table).await?;
            let delivered = self.deliver(&deliver, message).await;
            let after = self.state().await;
            DB::allow(&mut *self.store.pool().acquire().await?, &table).await?;
            let ((ended, notes), after) = (delivered?, after?);
            match ended {
                Ended::Failed(error) if notes.lost.is_some() || error.contains(IN_FAILED_TRANSACTION) => {
                    return Err(Failure::new(
                        format_args!(
                            "table `{shown}` refused a write of {message}, and the body went on as if it had not: \
                             the delivery failed ({error})"
                        ),
                        verdicts::SWALLOWED,
                    ));
                }
                Ended::Failed(_) => {}
                ended => {
                    return Err(Failure::new(
                        format_args!("table `{shown}` refused a write of {message}, and yet the delivery is {ended}"),
                        verdicts::SWALLOWED,
                    ));
                }
            }
            let what = format_args!("the delivery of {message}, which failed at table `{shown}`,");
            nothing(&before, &after, what)?;
            let redelivered = self.redeliver(&deliver, message).await?;
            if !redelivered.is_processed() {
                let place = format!("at table `{shown}`");
                return Err(not_processed_again(message, &place, &redelivered));
            }
            let after = self.state().await?;
            one_effect(&effect, &before, &after, format_args!("{message}, which failed once at table `{shown}`,"))?;
        }
        Ok(())
    }

    /// Lets the commit of a delivery fail, when the body is done: what it did in the transaction is rolled back, and the
    /// caller gets [`Error::CommitUnknown`](crate::Error::CommitUnknown), as after a lost connection. Nothing may have changed,
    /// and nothing may have been sent. A redelivery does the work.
    ///
    /// Where the caller commits too, with [`commit`](crate::commit), a further message fails at that.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that names the table, or says what was sent.
    pub async fn uncommitted<D: Delivered, E: fmt::Debug>(
        &self,
        deliver: impl AsyncFn(u64) -> Result<D, E>,
    ) -> Result<(), Failure> {
        let effect = self.effect(&deliver).await?;
        for commits in 0..MOST_COMMITS {
            let message = self.next::<D>();
            let before = self.state().await?;
            let delivery = Watched::new(deliver(message.number), || false).commits(commits);
            let (ended, notes) = self.watch(delivery, message).await?;
            match ended {
                Ended::Failed(_) if notes.uncommitted => {}
                ended if notes.uncommitted => return Err(verdicts::hidden(message, &ended)),
                // It has no more commits than that.
                Ended::Processed(_) => return Ok(()),
                ended => return Err(not_processed(message, &ended, notes.lost.as_ref())),
            }
            let failed = self.state().await?;
            // Another handler of the same delivery may have committed before.
            let whole = failed.marks == before.marks;
            if whole {
                nothing(&before, &failed, format_args!("the delivery of {message}, whose commit failed,"))?;
            }
            let redelivered = self.redeliver(&deliver, message).await?;
            if whole && !redelivered.is_processed() {
                return Err(not_processed_again(message, "at its commit", &redelivered));
            }
            let after = self.state().await?;
            one_effect(&effect, &before, &after, format_args!("{message}, whose commit failed once,"))?;
        }
        Ok(())
    }
}
