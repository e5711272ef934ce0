#!/usr/bin/env bash
# Installs the C interface: header, both libraries, and what pkg-config tells of them. Programs that were linked with the
# shared library look for it by its SONAME, which has the version of the interface.
#   crates/capi/install.sh PREFIX [LIBRARIES]
# LIBRARIES is the folder that cargo has built them into; target/release without it.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
prefix="${1:?usage: install.sh PREFIX [LIBRARIES]}"
libraries="${2:-$here/../../target/release}"
install -D -m 644 "$here/include/ebbtide.h" "$prefix/include/ebbtide.h"
version="$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")"
case "$version" in
    0.*) interface="${version%.*}" ;;
    *) interface="${version%%.*}" ;;
esac
install -D -m 755 "$libraries/libebbtide_c.so" "$prefix/lib/libebbtide_c.so.$interface"
ln -sfn "libebbtide_c.so.$interface" "$prefix/lib/libebbtide_c.so"
install -D -m 644 "$libraries/libebbtide_c.a" "$prefix/lib/libebbtide_c.a"
mkdir -p "$prefix/lib/pkgconfig"
cat > "$prefix/lib/pkgconfig/ebbtide.pc" <<END
prefix=$prefix
Name: ebbtide
Description: An embedded cache of TTL-indexed segments in memory and on flash
Version: $version
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -lebbtide_c
Libs.private: -lm -lpthread -ldl -lgcc_s
END
