//! What has no braces, where the message is the parameters themselves.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

#[idempotent(sequence(entity = "order", number = "version + 1"))]
async fn update(_tx: &mut SqliteTransaction<'_>, id: &str, version: i64) -> sqlx::Result<()> {
    Ok(())
}

#[idempotent(consumer = "suite.all")]
async fn all(_tx: &mut SqliteTransaction<'_>, number: u64) -> sqlx::Result<()> {
    Ok(())
}

#[idempotent(sequence(entity = "{id}", number = "number()"))]
async fn moved(_tx: &mut SqliteTransaction<'_>, id: &str, number: Option<u32>) -> sqlx::Result<()> {
    Ok(())
}

#[idempotent(each = "id in ids", key = "{tenant}")]
async fn batch(_tx: &mut SqliteTransaction<'_>, tenant: &str, ids: Vec<String>) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
