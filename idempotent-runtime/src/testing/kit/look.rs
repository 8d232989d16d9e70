//! Looking at the database, and at what is sent.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::database::{Progress, TableName};
use crate::testing::inspect::Table;
use crate::testing::state::State;
use crate::testing::{Failure, Inspect, Kit, verdicts};
use crate::{Database, process};

/// How long to wait for statements that were cut off.
const SETTLES: Duration = Duration::from_secs(1);
const SETTLES_SOON: Duration = Duration::from_millis(1);

impl<DB: Database + Inspect> Kit<DB> {
    /// Those of the application, and those that hold claims and positions: of every store, since a handler may have been
    /// given another one than the kit.
    pub(super) async fn tables(&self) -> Result<[Vec<Table>; 2], Failure> {
        let all = DB::tables(&mut *self.store.pool().acquire().await?).await?;
        if let Some(unknown) = self.without.iter().find(|without| !all.iter().any(|table| table.shown() == **without)) {
            return Err(verdicts::no_table(unknown, all.iter().map(Table::shown)));
        }
        let holds_claims = |table: &&Table| TableName::BESIDE.iter().all(|suffix| all.contains(&table.beside(suffix)));
        let claims: Vec<&Table> = all.iter().filter(holds_claims).collect();
        let own = |table: &Table| {
            claims.iter().any(|claims| {
                *claims == table || TableName::BESIDE.iter().any(|suffix| claims.beside(suffix) == *table)
            })
        };
        let applications = all.iter().filter(|table| !own(table) && !self.without.contains(&table.shown()));
        let mut marks: Vec<Table> = claims.iter().map(|claims| claims.beside(TableName::POSITIONS)).collect();
        marks.extend(claims.iter().copied().cloned());
        // These may be in a schema that is not listed.
        marks.extend(self.store.statements().table.marks().map(|(schema, name)| Table { schema, name }));
        Ok([applications.cloned().collect(), marks])
    }

    /// Waits until the pool has its connections back. It takes none before the server is done with the statement that a
    /// dropped future has left on it; so this is when those have had their effect.
    async fn settled(&self) {
        let pool = self.store.pool();
        // sqlx counts a connection as idle after others may take it, so the count can be below zero for a moment.
        let idle = || u32::try_from(pool.num_idle()).unwrap_or(0);
        let taken = || pool.size().saturating_sub(idle());
        let begun = Instant::now();
        while taken() > self.kept.load(Ordering::Relaxed) && begun.elapsed() < SETTLES {
            sqlx_core::rt::sleep(SETTLES_SOON).await;
        }
        // What the test itself holds is waited for once.
        self.kept.store(taken(), Ordering::Relaxed);
    }

    /// Undoes what sqlx leaves behind: a caller's own begin that is broken off can hand its connection back in the
    /// transaction, and whoever has it next reads old rows and commits nothing.
    pub(super) async fn tidied(&self) {
        self.settled().await;
        let idle: Vec<_> = std::iter::from_fn(|| self.store.pool().try_acquire()).collect();
        for mut connection in idle {
            if DB::restore(&mut connection, Progress::Open).await.is_err() {
                connection.close_on_drop();
            }
        }
    }

    /// The tables first, then the claims: an effect without a claim was not committed with one.
    pub(super) async fn state(&self) -> Result<State, Failure> {
        self.settled().await;
        let [tables, marks] = self.tables().await?;
        let mut connection = self.store.pool().acquire().await?;
        let mut contents = BTreeMap::new();
        for table in tables {
            contents.insert(table.shown(), DB::contents(&mut connection, &table).await?);
        }
        let mut claimed = Vec::new();
        for table in marks {
            claimed.push(DB::contents(&mut connection, &table).await.map_err(|error| self.of_claims(error))?);
        }
        Ok(State { tables: contents, marks: claimed, sent: self.recorder.counts() })
    }

    /// An error of a statement over the claim table.
    fn of_claims(&self, error: sqlx::Error) -> Failure {
        process::table_error(error, self.store.statements()).into()
    }

    pub(super) async fn claims(&self) -> Result<Vec<[String; 3]>, Failure> {
        let claims = DB::claims(&mut *self.store.pool().acquire().await?, self.store.statements()).await;
        claims.map_err(|error| self.of_claims(error))
    }
}
