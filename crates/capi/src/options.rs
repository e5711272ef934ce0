//! Options of a cache.

use crate::status::Failure;
use ebbtide::{ByteSize, Cache, Policy};
use std::ffi::{CStr, c_char};
use std::ptr;
use std::time::Duration;

/// Options of a cache. `ebbtide_options_init` fills in the defaults; strings end with a zero byte, null is "none".
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ebbtide_options {
    /// Bytes of this struct, set by `ebbtide_options_init`: a program that was compiled with an older header is
    /// recognized by it.
    pub size: usize,
    /// All memory that the cache may use: entries, index and spares. Default 64 MiB.
    pub memory_bytes: u64,
    /// The most memory that `ebbtide_resize` accepts; address space is reserved for it. Default 0: four times
    /// `memory_bytes`, or the memory of the machine where it is larger.
    pub memory_ceiling_bytes: u64,
    /// The largest value. 0: the default of the cache, 1 MiB.
    pub max_value_bytes: u64,
    /// Milliseconds that an entry lives which is inserted with the TTL `EBBTIDE_TTL_DEFAULT`. 0: for ever.
    pub default_ttl_ms: u64,
    /// Milliseconds after its last use that an entry lives which is inserted without a TTL. 0: for ever.
    pub time_to_idle_ms: u64,
    /// A file that `ebbtide_close` saves the entries to, and the next cache with the same file begins with.
    pub memory_file: *const c_char,
    /// A file or block device that is the flash tier.
    pub flash_path: *const c_char,
    /// Bytes of the flash tier.
    pub flash_bytes: u64,
    /// The name of the eviction policy.
    pub policy: *const c_char,
}

/// The string behind a pointer; `None` for null.
///
/// # Safety
/// The pointer is null, or of a string that ends with a zero byte and stays as it is during the call.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises a string that ends with a zero byte.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Failure::argument(format!("{name} is no UTF-8")))
}

impl ebbtide_options {
    /// # Safety
    /// The strings are as `text` wants them.
    pub(crate) unsafe fn open(&self) -> Result<Cache, Failure> {
        if self.size != size_of::<Self>() {
            let text =
                format!("options.size = {}, not {}: call ebbtide_options_init first", self.size, size_of::<Self>());
            return Err(Failure::argument(text));
        }
        let mut builder = Cache::builder().memory(ByteSize::bytes(self.memory_bytes));
        if self.memory_ceiling_bytes > 0 {
            let ceiling = ByteSize::bytes(self.memory_ceiling_bytes);
            builder = builder.engine(|engine| engine.memory_ceiling(ceiling));
        }
        if self.max_value_bytes > 0 {
            builder = builder.max_value(ByteSize::bytes(self.max_value_bytes));
        }
        if self.default_ttl_ms > 0 {
            builder = builder.default_ttl(Duration::from_millis(self.default_ttl_ms));
        }
        if self.time_to_idle_ms > 0 {
            builder = builder.time_to_idle(Duration::from_millis(self.time_to_idle_ms));
        }
        // SAFETY: the caller promises the strings.
        let (file, flash, policy) = unsafe {
            (text(self.memory_file, "memory_file")?, text(self.flash_path, "flash_path")?, text(self.policy, "policy")?)
        };
        if let Some(path) = file {
            builder = builder.memory_file(path);
        }
        if let Some(path) = flash {
            builder = builder.flash(path, ByteSize::bytes(self.flash_bytes));
        }
        if let Some(name) = policy {
            builder = builder.policy(name.parse::<Policy>().map_err(|unknown| Failure::argument(unknown.to_string()))?);
        }
        Ok(builder.build()?)
    }
}

/// Fills in the defaults. Does nothing with null.
///
/// # Safety
/// `options` is null or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_options_init(options: *mut ebbtide_options) {
    let defaults = ebbtide_options {
        size: size_of::<ebbtide_options>(),
        memory_bytes: ByteSize::mib(64).as_bytes(),
        memory_ceiling_bytes: 0,
        max_value_bytes: 0,
        default_ttl_ms: 0,
        time_to_idle_ms: 0,
        memory_file: ptr::null(),
        flash_path: ptr::null(),
        flash_bytes: 0,
        policy: ptr::null(),
    };
    if !options.is_null() {
        // SAFETY: the caller promises memory for the struct.
        unsafe { options.write(defaults) };
    }
}
