//! Handlers of an application that knows the library by another name: the macros find it without `crate = deliveries`.

use deliveries::{KeyPart, idempotent};
use sqlx::SqliteTransaction;

/// The id of an order.
#[derive(KeyPart)]
pub struct OrderId(u64);

/// Says which order it was.
///
/// # Errors
///
/// Those of the database.
#[idempotent(key = "{order}")]
pub async fn ship(_tx: &mut SqliteTransaction<'_>, order: &OrderId) -> sqlx::Result<u64> {
    Ok(order.0)
}

#[cfg(test)]
mod tests {
    use sqlx::SqlitePool;

    use super::{OrderId, ship};

    #[tokio::test]
    async fn a_renamed_library_is_found() -> sqlx::Result<()> {
        let pool = SqlitePool::connect("sqlite::memory:").await?;
        deliveries::migrate(&pool).await?;
        assert_eq!(ship(&pool, &OrderId(7)).await?.value(), Some(7));
        assert!(ship(&pool, &OrderId(7)).await?.is_duplicate());
        Ok(())
    }
}
