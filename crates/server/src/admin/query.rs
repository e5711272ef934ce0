//! The parameters behind the `?` of a path: `name=value`, joined by `&`, percent-encoded.

/// The parameters, decoded. A name may be given once.
#[derive(Debug, Default, PartialEq)]
pub struct Query(Vec<(String, Vec<u8>)>);

impl Query {
    /// # Errors
    /// The answer for the client: which parameter is wrong, and which ones there are.
    pub fn parse(query: Option<&str>, names: &[&str]) -> Result<Self, String> {
        let mut found: Vec<(String, Vec<u8>)> = Vec::new();
        for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let known = names.iter().find(|known| **known == name);
            let known = known.ok_or_else(|| {
                let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
                format!("{shown:?} is no parameter here; there are: {}\n", names.join(", "))
            })?;
            if found.iter().any(|(name, _)| name == known) {
                return Err(format!("{known} is given twice\n"));
            }
            let value = decode(value).ok_or_else(|| format!("{known}: two hexadecimal digits must follow each %\n"))?;
            found.push(((*known).to_owned(), value));
        }
        Ok(Self(found))
    }

    /// The bytes of a parameter.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// A whole number.
    ///
    /// # Errors
    /// The answer for the client.
    pub fn number(&self, name: &str, unit: &str) -> Result<Option<u64>, String> {
        let parse = |value: &[u8]| str::from_utf8(value).ok()?.parse().ok();
        let value = self.bytes(name);
        value.map(|value| parse(value).ok_or_else(|| format!("{name} is a whole number of {unit}\n"))).transpose()
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse(Some("filter=a%3a%00b&next=17"), &["filter", "next"]).unwrap();
        assert_eq!(query.bytes("filter"), Some(b"a:\0b".as_slice()));
        assert_eq!((query.number("next", "steps"), query.bytes("absent")), (Ok(Some(17)), None));
        assert!(query.number("filter", "seconds").unwrap_err().contains("whole number of seconds"));
        assert_eq!(Query::parse(None, &[]), Ok(Query::default()));
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (query, word) in
            [("x=1", "no parameter"), ("a=1&a=2", "twice"), ("a=%4", "hexadecimal"), ("a=%zz", "a: two")]
        {
            let error = Query::parse(Some(query), &["a", "b"]).unwrap_err();
            assert!(error.contains(word), "{query}: {error}");
        }
    }
}
