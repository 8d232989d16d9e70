//! M1: the handler returns `Result<impl Trait, E>`, and `?` still knows its error type.

use std::fmt::Display;

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

#[idempotent(key = "{id}")]
async fn describe(tx: &mut SqliteTransaction<'_>, id: u64) -> Result<impl Display, sqlx::Error> {
    let number: i64 = sqlx::query_scalar("SELECT 1").fetch_one(&mut **tx).await?;
    if number > 1 {
        return Ok(number.to_string());
    }
    Ok(format!("{id}: {number}"))
}

fn assert_display(_: impl Display) {}

async fn caller(pool: &sqlx::SqlitePool) -> sqlx::Result<()> {
    if let Some(text) = describe(pool, 1).await?.value() {
        assert_display(text);
    }
    Ok(())
}

fn main() {
    let _ = caller;
}
