//! Where the savepoint of the claim stands, and what becomes of a transaction that has lost it.

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor as _, MySqlTransaction, SqlStr};

use crate::database::{Admission, Failed, Statements};
use crate::outcome::Identity;
use crate::replay::StoredValue;
use crate::sequence::Position;

/// Where the savepoint of the claim stands.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    pub(super) depth: usize,
    pub(super) autocommit_off: bool,
}

impl Watch {
    /// The request that ends a transaction of the handler's own.
    pub(super) fn end(self, requests: [&'static str; 2]) -> SqlStr {
        SqlStr::from_static(requests[usize::from(self.autocommit_off)])
    }

    /// Stores the value with its claim. With autocommit on, it first makes sure that the transaction is still there: outside
    /// one, the value of a run that failed would stay.
    pub(super) async fn store(
        self,
        connection: &mut MySqlConnection,
        statements: &Statements,
        identity: &Identity,
        StoredValue(value): &StoredValue,
    ) -> Result<(), sqlx::Error> {
        if !self.autocommit_off {
            let savepoint = self.savepoint().unwrap_or_else(|| "idempotent_claim".to_owned());
            let renew = format!("RELEASE SAVEPOINT {savepoint}; SAVEPOINT {savepoint}");
            connection.execute(AssertSqlSafe(renew)).await?;
        }
        let store = sqlx::query(statements.store.clone())
            .bind(value)
            .bind(&*identity.consumer)
            .bind(&*identity.sender)
            .bind(&*identity.key);
        store.execute(connection).await.map(drop)
    }

    /// sqlx's name for the savepoint of a joined transaction.
    pub(super) fn savepoint(self) -> Option<String> {
        (self.depth > 1).then(|| format!("_sqlx_savepoint_{}", self.depth - 1))
    }

    /// Ends a transaction whose savepoint is gone.
    pub(super) async fn give_up(self, mut transaction: MySqlTransaction<'_>, admission: Admission<'_>) -> Failed {
        let statements = admission.statements;
        let (claim, position) = admission.any();
        let end = async {
            // What was written since is in a transaction of its own: autocommit is off.
            transaction.execute("ROLLBACK").await?;
            // Ours was committed early, or it is gone. A rival's is taken for ours: its message was processed.
            let mut kept = false;
            if let Some(identity) = claim {
                let find = sqlx::query_scalar::<_, i64>(statements.find.clone())
                    .bind(&*identity.consumer)
                    .bind(&*identity.sender)
                    .bind(&*identity.key);
                kept = find.fetch_optional(&mut *transaction).await?.is_some();
            } else if let Some(Position { consumer, sender, entity, number }) = position {
                let position = sqlx::query_scalar::<_, i64>(statements.position.clone())
                    .bind(consumer)
                    .bind(&**sender)
                    .bind(&**entity);
                kept = position.fetch_optional(&mut *transaction).await?.is_some_and(|stored| stored >= *number);
            }
            if self.depth == 1 {
                transaction.execute(self.end(["ROLLBACK", "ROLLBACK; SET autocommit = 1"])).await?;
            } else {
                // The caller's transaction is gone too: what it does next must not commit without what it did before.
                let _ = transaction.execute("KILL CONNECTION_ID()").await;
            }
            Ok(kept)
        };
        match end.await {
            Ok(kept) => Failed::Lost { kept },
            Err(error) => Failed::AtEnd(error),
        }
    }
}
