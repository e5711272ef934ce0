//! Flat types: values whose bytes are copied in and out of a structured value.
//!
//! Integers are big-endian, and signed ones have their sign bit flipped, so that their bytes sort as the numbers do.
//! Floats are the big-endian bits. `String` is UTF-8, `Vec<u8>` and `[u8; N]` are bytes; other arrays are their
//! elements.

/// A type that a structured value can hold: as a key or a value of a map, or as an element of an array.
pub trait Flat: Sized {
    /// The number of the type in the head of a structured value; types with equal bytes may share one. Types of a
    /// program begin at 2^16.
    const TYPE: u32;

    /// Appends the bytes.
    fn write(&self, bytes: &mut Vec<u8>);

    /// The value of these bytes; `None` if they are of no value.
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// A flat type all of whose values have as many bytes.
pub trait Fixed: Flat {
    const BYTES: usize;
}

/// A flat type whose bytes sort as its values do.
pub trait Ordered: Flat + Ord {}

/// Types of arrays are the type of the element, and this times the number of elements.
const ARRAY: u32 = 1 << 5;
/// Elements of an array at most, so that the numbers of types stay below those of a program.
const ARRAY_ELEMENTS_MAX: usize = 2047;

macro_rules! fixed {
    ($type:ty, $number:expr, $to:expr, $from:expr) => {
        impl Flat for $type {
            const TYPE: u32 = $number;

            fn write(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&$to(*self).to_be_bytes());
            }

            fn read(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(|bytes| $from(bytes))
            }
        }

        impl Fixed for $type {
            const BYTES: usize = size_of::<$type>();
        }

        impl<const N: usize> Flat for [$type; N] {
            const TYPE: u32 = {
                assert!(N > 0 && N <= ARRAY_ELEMENTS_MAX, "arrays have 1 to 2047 elements");
                $number + N as u32 * ARRAY
            };

            fn write(&self, bytes: &mut Vec<u8>) {
                self.iter().for_each(|element| element.write(bytes));
            }

            fn read(bytes: &[u8]) -> Option<Self> {
                if bytes.len() != Self::BYTES {
                    return None;
                }
                let element = |i: usize| &bytes[i * size_of::<$type>()..(i + 1) * size_of::<$type>()];
                Some(std::array::from_fn(|i| $from(element(i).try_into().expect("the length of an element"))))
            }
        }

        impl<const N: usize> Fixed for [$type; N] {
            const BYTES: usize = N * size_of::<$type>();
        }
    };
}

macro_rules! unsigned {
    ($type:ty, $number:expr) => {
        fixed!($type, $number, |value: $type| value, <$type>::from_be_bytes);
        impl Ordered for $type {}
        impl<const N: usize> Ordered for [$type; N] {}
    };
}

macro_rules! signed {
    ($type:ty, $number:expr) => {
        fixed!($type, $number, |value: $type| value ^ <$type>::MIN, |bytes| <$type>::from_be_bytes(bytes)
            ^ <$type>::MIN);
        impl Ordered for $type {}
        impl<const N: usize> Ordered for [$type; N] {}
    };
}

unsigned!(u8, 2);
unsigned!(u16, 3);
unsigned!(u32, 4);
unsigned!(u64, 5);
unsigned!(u128, 6);
signed!(i8, 7);
signed!(i16, 8);
signed!(i32, 9);
signed!(i64, 10);
signed!(i128, 11);
fixed!(f32, 12, |value: f32| value, f32::from_be_bytes);
fixed!(f64, 13, |value: f64| value, f64::from_be_bytes);

impl Flat for Vec<u8> {
    const TYPE: u32 = 0;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

impl Flat for String {
    const TYPE: u32 = 1;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.as_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }
}

impl Ordered for Vec<u8> {}
impl Ordered for String {}

/// The name of a type by its number, for messages.
pub(super) fn type_name(number: u32) -> String {
    const NAMES: [&str; 14] =
        ["bytes", "String", "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "f32", "f64"];
    let (element, elements) = (number % ARRAY, number / ARRAY);
    match NAMES.get(element as usize) {
        Some(name) if elements == 0 => (*name).to_owned(),
        Some(name) if element > 1 && elements as usize <= ARRAY_ELEMENTS_MAX => format!("[{name}; {elements}]"),
        _ => format!("type {number}"),
    }
}

/// The bytes of a flat value.
pub(super) fn bytes_of(value: &impl Flat) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.write(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_written() {
        fn same<T: Flat + PartialEq + std::fmt::Debug + Clone>(values: &[T]) {
            for value in values {
                assert_eq!(T::read(&bytes_of(value)).as_ref(), Some(value));
            }
        }
        same(&[0_u8, 255]);
        same(&[0_u64, 1, u64::MAX]);
        same(&[i64::MIN, -1, 0, 1, i64::MAX]);
        same(&[i128::MIN, -1, 7]);
        same(&[0.5_f32, -1.5, f32::INFINITY]);
        same(&[[1_u8, 2, 3]]);
        same(&[[1.5_f32; 16]]);
        same(&["".to_owned(), "café".to_owned()]);
        same(&[vec![], vec![0_u8, 255]]);
    }

    #[test]
    fn bytes_of_ordered_types_sort_as_the_values() {
        fn sorted<T: Ordered + std::fmt::Debug>(values: &[T]) {
            let bytes: Vec<Vec<u8>> = values.iter().map(bytes_of).collect();
            assert!(bytes.is_sorted(), "{values:?}: {bytes:?}");
        }
        sorted(&[0_u16, 1, 255, 256, u16::MAX]);
        sorted(&[i32::MIN, -256, -1, 0, 1, 255, 256, i32::MAX]);
        sorted(&[[-1_i16, 5], [0, -7], [0, 3]]);
        sorted(&["".to_owned(), "a".to_owned(), "ab".to_owned(), "b".to_owned()]);
    }

    #[test]
    fn types_are_named_as_in_rust() {
        fn name<T: Flat>() -> String {
            type_name(T::TYPE)
        }
        let names = [name::<Vec<u8>>(), name::<String>(), name::<u8>(), name::<i128>(), name::<f64>()];
        assert_eq!(names, ["bytes", "String", "u8", "i128", "f64"]);
        assert_eq!([name::<[u8; 1]>(), name::<[f32; 2047]>()], ["[u8; 1]", "[f32; 2047]"]);
        for of_a_program in [14, ARRAY, ARRAY + 1, 1 << 16, (1 << 16) + 4, u32::MAX] {
            assert_eq!(type_name(of_a_program), format!("type {of_a_program}"));
        }
    }

    #[test]
    fn wrong_bytes_are_no_value() {
        assert_eq!(u32::read(&[1, 2, 3]), None);
        assert_eq!(<[u16; 2]>::read(&[1, 2, 3]), None);
        assert_eq!(String::read(&[0xFF]), None);
        assert_ne!(<[u8; 4]>::TYPE, u32::TYPE);
    }
}
