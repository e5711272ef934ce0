#!/bin/sh
# Builds the Debian package with dpkg-deb: build.sh BINARY VERSION DIRECTORY. The binary writes its own man pages and
# shell completions. COMPRESSION is that of dpkg-deb. Run from the root of the repository.
set -eu
binary=$1 version=$2 out=$3
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
architecture=$(dpkg --print-architecture)

install -D -m 755 "$binary" "$root/usr/bin/ebbtide"
strip --strip-unneeded "$root/usr/bin/ebbtide" 2>/dev/null || true
install -D -m 644 packaging/etc/ebbtide.conf "$root/etc/ebbtide.conf"
install -D -m 644 packaging/systemd/ebbtide.service "$root/lib/systemd/system/ebbtide.service"
mkdir -p "$root/usr/share/man/man1" "$root/usr/share/doc/ebbtide" "$root/usr/share/bash-completion/completions" \
    "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d" "$root/DEBIAN"
"$binary" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
"$binary" completions bash > "$root/usr/share/bash-completion/completions/ebbtide"
"$binary" completions zsh > "$root/usr/share/zsh/vendor-completions/_ebbtide"
"$binary" completions fish > "$root/usr/share/fish/vendor_completions.d/ebbtide.fish"
install -m 644 docs/*.md README.md "$root/usr/share/doc/ebbtide/"
cat packaging/debian/copyright > "$root/usr/share/doc/ebbtide/copyright"
# What changed is in CHANGELOG.md; a package of Debian has its own form for the version and the date.
date=$(date -u -R -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}")
printf '%s\n\n  * %s\n\n -- %s  %s\n' "ebbtide ($version) unstable; urgency=medium" \
    "Release $version: see /usr/share/doc/ebbtide/CHANGELOG.md.gz." \
    "$(sed -n 's/^Maintainer: //p' packaging/debian/control)" "$date" | gzip -9n > "$root/usr/share/doc/ebbtide/changelog.gz"
gzip -9nc CHANGELOG.md > "$root/usr/share/doc/ebbtide/CHANGELOG.md.gz"
mkdir -p "$root/usr/share/ebbtide"
install -m 644 packaging/prometheus/alerts.yaml packaging/grafana/ebbtide.json "$root/usr/share/ebbtide/"

sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" \
    -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f1)/" packaging/debian/control > "$root/DEBIAN/control"
echo /etc/ebbtide.conf > "$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do
    install -m 755 "packaging/debian/$script" "$root/DEBIAN/$script"
done
mkdir -p "$out"
dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$root" "$out/ebbtide_${version}_$architecture.deb"
