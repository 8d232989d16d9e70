//! What the `payments_api` example needs of HTTP: the header `Idempotency-Key`, and problems as answers.

use std::error::Error as StdError;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use idempotent_runtime::Error;
use serde_json::json;

/// Where the server says how its keys work. Every problem with a key links to it.
pub const POLICY_PATH: &str = "/docs/idempotency";
/// The longest key, in characters: Stripe's limit. Any other would do, since the library stores long keys as a digest.
pub const MAX_KEY: usize = 255;

/// Reads the header `Idempotency-Key`. `None` if it is not there.
///
/// The draft wants a String of RFC 9651, section 3.3.3: visible ASCII and spaces in double quotes, with `\"` and `\\` for
/// the two characters that would end it. Stripe's clients send the characters without quotes, so that is read as well:
/// `"abc"` and `abc` are the same key.
///
/// # Errors
///
/// 400 for a header that is there twice, is neither of the two, or is too long. A blank one is the handler's business.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all("idempotency-key").iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        let count = headers.get_all("idempotency-key").iter().count();
        return if count == 0 { Ok(None) } else { Err(Problem::malformed_key("it is there more than once")) };
    };
    // Spaces around a field's value are no part of it.
    let value = value.to_str().map_err(|_| Problem::malformed_key("it is not ASCII"))?.trim();
    let key = match value.strip_prefix('"') {
        Some(quoted) => unquote(quoted).ok_or_else(|| Problem::malformed_key("it is no String of RFC 9651"))?,
        None if value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"') => value.to_owned(),
        None => return Err(Problem::malformed_key("without quotes it has no spaces and no quotes inside")),
    };
    if key.len() > MAX_KEY {
        return Err(Problem::malformed_key("it is longer than 255 characters"));
    }
    Ok(Some(key))
}

/// What follows the opening quote, up to the closing one, behind which there must be nothing.
fn unquote(quoted: &str) -> Option<String> {
    let mut key = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next()? {
            '"' => return characters.as_str().is_empty().then_some(key),
            '\\' => key.push(characters.next().filter(|next| matches!(next, '"' | '\\'))?),
            character @ ' '..='~' => key.push(character),
            _ => return None,
        }
    }
}

/// An answer that says what is wrong, as RFC 9457 has it.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    /// The heading in the policy that is about it; none where the status says it all.
    heading: Option<&'static str>,
    title: &'static str,
    detail: String,
}

impl Problem {
    /// A problem that has nothing to do with keys.
    #[must_use]
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Problem");
        Self { status, heading: None, title, detail: detail.into() }
    }

    fn of_key(status: StatusCode, heading: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, heading: Some(heading), title, detail: detail.into() }
    }

    fn malformed_key(why: &str) -> Self {
        let detail = format!("The header Idempotency-Key cannot be used: {why}.");
        Self::of_key(StatusCode::BAD_REQUEST, "the-key", "Idempotency-Key is malformed", detail)
    }

    /// The status of the answer.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The first request of this key is not answered yet.
    #[must_use]
    pub fn in_progress() -> Self {
        Self::of_key(
            StatusCode::CONFLICT,
            "while-it-is-processed",
            "A request is outstanding for this Idempotency-Key",
            "The first request of this key is still being processed. Send it again, unchanged, after a pause.",
        )
    }

    /// What the library's error means to a client, wherever it is in the handler's own error.
    #[must_use]
    pub fn of(error: &(dyn StdError + 'static)) -> Self {
        let own = Error::find(error);
        let status = own.map_or(500, Error::http_status);
        match own {
            Some(Error::MissingKey { .. }) => Self::of_key(
                StatusCode::BAD_REQUEST,
                "the-key",
                "Idempotency-Key is missing",
                "This operation needs the header Idempotency-Key, and it must not be blank.",
            ),
            Some(Error::FingerprintMismatch(_)) => Self::of_key(
                StatusCode::UNPROCESSABLE_ENTITY,
                "another-payment",
                "Idempotency-Key is already used",
                "This key came before with another payment. A new payment needs a new key.",
            ),
            Some(Error::InProgress(_)) => Self::in_progress(),
            // What is wrong with the server is told to its log, and not to its clients.
            _ => Self::new(
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                "Send it again, unchanged, after a pause: it is paid once, however often it is sent.",
            ),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, heading, title, detail } = self;
        let kind = heading.map_or_else(|| "about:blank".to_owned(), |heading| format!("{POLICY_PATH}#{heading}"));
        let body = json!({ "type": kind, "title": title, "status": status.as_u16(), "detail": detail });
        let mut response =
            (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response();
        let headers = response.headers_mut();
        if matches!(status, StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(values: &[&str]) -> Result<Option<String>, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("idempotency-key", HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        idempotency_key(&headers)
    }

    #[test]
    fn quoted_and_bare_keys_are_read() {
        for (value, key) in [
            (r#""8e03978e-40d5-43e8-bc93-6894a57f9324""#, "8e03978e-40d5-43e8-bc93-6894a57f9324"),
            ("KG5LxwFBepaKHyUD", "KG5LxwFBepaKHyUD"),
            (r#""a \"b\" \\ c""#, r#"a "b" \ c"#),
            ("  abc  ", "abc"),
            (r#""""#, ""),
            ("", ""),
        ] {
            assert_eq!(read(&[value]).unwrap().as_deref(), Some(key), "{value}");
        }
        assert_eq!(read(&[]).unwrap(), None);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let long = "x".repeat(MAX_KEY + 1);
        for values in [
            &["a", "a"][..],
            &["a b"],
            &["a\"b"],
            &["\"a"],
            &["\"a\"b"],
            &["\"a\";p=1"],
            &[r#""\x""#],
            &["\"\t\""],
            &["ä"],
            &[&long],
        ] {
            assert_eq!(read(values).unwrap_err().status, StatusCode::BAD_REQUEST, "{values:?}");
        }
    }
}
