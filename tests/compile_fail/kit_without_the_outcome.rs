//! The testing kit's closure drops what the handler returned.

use idempotent_runtime::idempotent;
use idempotent_runtime::testing::{Failure, Kit};
use sqlx::SqliteTransaction;

#[idempotent(key = "{id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<()> {
    Ok(())
}

async fn handler_is_idempotent(pool: &sqlx::SqlitePool) -> Result<(), Failure> {
    let deliver = async |n| {
        handler(pool, n).await?;
        sqlx::Result::Ok(())
    };
    Kit::new(pool).check(deliver).await
}

fn main() {}
