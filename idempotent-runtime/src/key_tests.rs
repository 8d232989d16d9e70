use proptest::prelude::*;

use super::*;

/// Templates of two parts with separators that try to confuse: punctuation that hexadecimal digits or letters follow,
/// braces, quotes, and literal text before and after.
static TEMPLATES: [Template; 6] = [
    Template::new("{a}:{b}", &["", ":", ""]),
    Template::new("order-{a}/{b}", &["order-", "/", ""]),
    Template::new("{a}_3A{b}!", &["", "_3A", "!"]),
    Template::new("{{{a}}}.{b}'\"", &["{", "}.", "'\""]),
    Template::new("{a}::{b}", &["", "::", ""]),
    Template::new("x{a}-y-{b}", &["x", "-y-", ""]),
];

fn encode(template: &'static Template, parts: &[String]) -> String {
    let writer = parts.iter().fold(Writer::new(template, MAX_KEY), |writer, part| writer.part("part", part));
    match writer.finish() {
        Encoded::Stored(form) => form.into_owned(),
        refused => panic!("{refused:?} for {parts:?}"),
    }
}

/// Undoes [`encode`] with nothing but the template: what can be undone is injective.
fn decode(template: &Template, form: &str) -> Option<Vec<String>> {
    let mut rest = form.strip_prefix(template.literals[0])?;
    let mut parts = Vec::new();
    for (index, literal) in template.literals.iter().enumerate().skip(1) {
        let end = if literal.is_empty() {
            rest.len()
        } else if index == template.literals.len() - 1 {
            rest.len() - literal.len()
        } else {
            rest.find(literal)?
        };
        let mut bytes = Vec::new();
        let mut part = rest[..end].bytes();
        while let Some(byte) = part.next() {
            bytes.push(if byte == b'%' {
                let digits = [part.next()?, part.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            } else {
                byte
            });
        }
        parts.push(String::from_utf8(bytes).ok()?);
        rest = rest[end..].strip_prefix(literal)?;
    }
    rest.is_empty().then_some(parts)
}

/// Text that is likely to collide: separators, percent signs, hexadecimal digits, white space, controls, accents.
fn part() -> impl Strategy<Value = String> {
    let awkward = prop::sample::select(vec![
        ":", "/", "-", "_", ".", "%", "%3A", "%25", "3A", "::", "y", "x", "order-", " ", "\u{0}", "\n", "\u{7f}", "é",
        "e\u{301}", "😀", "K", "k", "'", "\"", "{", "}", "!", "a", "A", "0", "sha256:",
    ]);
    let text = prop_oneof![
        4 => prop::collection::vec(awkward, 1..12).prop_map(|pieces| pieces.concat()),
        1 => any::<String>(),
        1 => "[a-z0-9-]{1,400}",
    ];
    // A blank part is a missing key. A filter would reject so many of ten million that the run is given up.
    text.prop_map(|text| if text.chars().all(char::is_whitespace) { text + "x" } else { text })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::test_cases(2_000, 3_400_000)))]

    #[test]
    fn a_stored_key_is_printable_and_at_most_255_bytes(template in 0..TEMPLATES.len(), a in part(), b in part()) {
        let form = encode(&TEMPLATES[template], &[a, b]);
        prop_assert!((1..=MAX_KEY).contains(&form.len()), "{form}");
        prop_assert!(form.bytes().all(|byte| byte.is_ascii_graphic()), "{form}");
    }

    #[test]
    fn a_stored_key_leads_back_to_its_values(template in 0..TEMPLATES.len(), a in part(), b in part()) {
        let template = &TEMPLATES[template];
        let form = encode(template, &[a.clone(), b.clone()]);
        if form.starts_with("%sha256:") {
            prop_assert_eq!(form.len(), "%sha256:".len() + 64);
            prop_assert_eq!(decode(template, &form), None, "a digest is no other value's form");
        } else {
            prop_assert_eq!(decode(template, &form), Some(vec![a, b]));
        }
    }

    #[test]
    fn different_values_never_give_one_stored_key(
        template in 0..TEMPLATES.len(), a in part(), b in part(), c in part(), d in part(), cut in any::<prop::sample::Index>(),
    ) {
        let template = &TEMPLATES[template];
        // The likeliest collision is the same text, cut elsewhere.
        let joined = format!("{a}{b}");
        let cuts: Vec<usize> = joined.char_indices().map(|(at, _)| at).collect();
        let (left, right) = joined.split_at(cuts[cut.index(cuts.len())]);
        for other in [[c, d], [b.clone(), a.clone()], [left.to_owned(), right.to_owned()]] {
            let blank = other.iter().any(|part| part.chars().all(char::is_whitespace));
            if !blank && other != [a.clone(), b.clone()] {
                prop_assert_ne!(encode(template, &[a.clone(), b.clone()]), encode(template, &other));
            }
        }
    }
}

#[test]
fn ids_stay_as_they_are() {
    let key = |part: &dyn KeyPart| Key::new(part).map(|key| key.key().to_owned()).unwrap_or_default();
    assert_eq!(key(&"evt_001"), "evt_001");
    assert_eq!(key(&-7_i64), "-7");
    assert_eq!(key(&u128::MAX), u128::MAX.to_string());
    assert_eq!(key(&true), "true");
    assert_eq!(key(&'x'), "x");
    assert_eq!(key(&Box::new(std::sync::Arc::new(String::from("a/b?c")))), "a/b?c");
}

#[test]
fn what_literal_text_contains_is_encoded_in_every_part() {
    let form = |template, parts: [&str; 2]| encode(template, &parts.map(str::to_owned));
    assert_eq!(form(&TEMPLATES[0], ["a:b", "c d"]), "a%3Ab:c%20d");
    assert_eq!(form(&TEMPLATES[1], ["7-8", "100%"]), "order-7%2D8/100%25");
    assert_eq!(form(&TEMPLATES[0], ["é", "\u{7f}\u{0}"]), "%C3%A9:%7F%00");
}

#[test]
fn a_form_over_255_bytes_becomes_its_digest() {
    let longest = "k".repeat(MAX_KEY);
    assert_eq!(encode(&ONE_PART, std::slice::from_ref(&longest)), longest);
    let digest = encode(&ONE_PART, &["k".repeat(MAX_KEY + 1)]);
    assert_eq!(digest, "%sha256:ce16fe78208a4e93f7158e62393680e025b2ad584f4e875ce903a654bb74cf93");
    // The digest is of the whole encoded form, so one more character, case or accent is another key.
    for other in ["k".repeat(MAX_KEY + 2), format!("K{}", "k".repeat(MAX_KEY)), "é".repeat(200)] {
        assert_ne!(encode(&ONE_PART, &[other]), digest);
    }
}

#[test]
fn an_empty_or_blank_part_is_missing() {
    for blank in ["", " ", "\t\r\n", "\u{a0}\u{2003}"] {
        assert!(matches!(Key::new(blank), Err(Error::MissingKey { .. })), "{blank:?}");
        assert!(matches!(Key::from_parts(&[&"a", &blank]), Err(Error::MissingKey { .. })), "{blank:?}");
        assert!(Key::new("a").and_then(|key| key.with_sender(blank)).is_err(), "{blank:?}");
    }
    assert!(Key::from_parts(&[]).is_err());
    let absent = Writer::new(&TEMPLATES[0], MAX_KEY).optional("a", &Some("x")).optional("b", &None::<i64>).finish();
    assert!(matches!(absent, Encoded::Missing("b")));
}

#[test]
fn a_long_sender_becomes_a_digest_too() {
    let sender = |text: &str| Key::new("k").and_then(|key| key.with_sender(text)).map(|key| key.sender().to_owned());
    assert_eq!(sender(&"s".repeat(MAX_SENDER)).unwrap_or_default(), "s".repeat(MAX_SENDER));
    assert!(sender(&"s".repeat(MAX_SENDER + 1)).unwrap_or_default().starts_with("%sha256:"));
}

#[cfg(all(feature = "uuid", feature = "chrono", feature = "time"))]
#[test]
fn uuids_and_dates_have_one_text() {
    let key = |part: &dyn KeyPart| Key::new(part).map(|key| key.key().to_owned()).unwrap_or_default();
    assert_eq!(key(&uuid::Uuid::from_u128(0xABCD)), "00000000-0000-0000-0000-00000000abcd");
    assert_eq!(
        chrono::NaiveDate::from_ymd_opt(2026, 11, 3).as_ref().map(|date| key(date)).as_deref(),
        Some("2026-11-03")
    );
    let date = time::Date::from_ordinal_date(2026, 307).ok();
    assert_eq!(date.as_ref().map(|date| key(date)).as_deref(), Some("2026-11-03"));
}

static CONTENT: Template = Template::new("{a}/{b}", &["", "/", ""]);
static OTHER_CONTENT: Template = Template::new("{b}/{a}", &["", "/", ""]);

fn digest(template: &'static Template, a: Option<&str>, b: Option<&str>) -> Fingerprint {
    Writer::new(template, usize::MAX).optional("a", &a).optional("b", &b).digest()
}

#[test]
fn fingerprints_differ_by_every_value_and_by_whether_it_is_there() {
    let long = "x".repeat(5000);
    let contents = [
        (Some("1"), Some("2")),
        (Some("1"), Some("")),
        (Some("1"), None),
        (Some("1"), Some("%none")),
        (Some("1/"), Some("2")),
        (Some("1"), Some("/2")),
        (None, None),
        (Some(""), Some(" ")),
        (Some(&*long), Some("1")),
        (Some(&*long), Some("2")),
    ];
    for (index, &(a, b)) in contents.iter().enumerate() {
        let own = digest(&CONTENT, a, b);
        assert!(!contradicts(&own, &digest(&CONTENT, a, b)));
        for &(a, b) in &contents[index + 1..] {
            assert!(contradicts(&own, &digest(&CONTENT, a, b)), "{a:?} {b:?}");
        }
    }
}

#[test]
fn a_fingerprint_of_another_template_says_nothing() {
    let own = digest(&CONTENT, Some("1"), Some("2"));
    assert!(!contradicts(&own, &digest(&OTHER_CONTENT, Some("3"), Some("4"))));
    assert!(!contradicts(&own, b"of another version"));
}
