//! Reads values that are a text or a list, such as the content of a message.

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// A text, or a list of items.
pub enum TextOrList<T> {
    Text(String),
    List(Vec<T>),
}

/// Reads a text or a list in one pass, so that an error has the path of the wrong item. serde's own code for such a type would lose the path.
/// `expected` names both forms, for errors.
///
/// # Errors
/// The errors of the items; an error if the value has another type.
pub fn text_or_list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D, expected: &'static str) -> Result<TextOrList<T>, D::Error> {
    struct TextOrListVisitor<T>(&'static str, PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrListVisitor<T> {
        type Value = TextOrList<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<TextOrList<T>, E> {
            Ok(TextOrList::Text(text.into()))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<TextOrList<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = all.next_element()? {
                items.push(item);
            }
            Ok(TextOrList::List(items))
        }
    }
    from.deserialize_any(TextOrListVisitor(expected, PhantomData))
}
