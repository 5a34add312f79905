#!/usr/bin/env bash
# Unpacks the Vulkan drivers of another Debian release into a cache folder, without installing anything, and prints the folder:
#   tools/mesa.sh backports   Mesa of Debian 12's backports, with the shim that stands in for a GPU's kernel driver
#   tools/mesa.sh sid         Mesa of Debian unstable, with all libraries that it needs
# Environment: WINGBEAT_MESA (default: ~/.cache/wingbeat/mesa) is the cache folder. Needs apt-get and dpkg-deb; root is not needed.
# Exits with 3 if this machine cannot have the packages.
set -euo pipefail

release=${1:?usage: tools/mesa.sh backports|sid}
cache=${WINGBEAT_MESA:-${XDG_CACHE_HOME:-$HOME/.cache}/wingbeat/mesa}
case $release in
  backports)
    suites=(bookworm bookworm-backports)
    # All other libraries come from the system.
    packages=(mesa-vulkan-drivers/bookworm-backports mesa-drm-shim/bookworm-backports libdrm2/bookworm-backports libdrm-amdgpu1/bookworm-backports)
    depends=no ;;
  sid)
    suites=(sid)
    packages=(mesa-vulkan-drivers mesa-drm-shim libvulkan1 libstdc++6 libgcc-s1)
    depends=yes ;;
  *) echo "unknown release $release: expected backports or sid" >&2; exit 2 ;;
esac

root=$cache/$release
[ -e "$root/complete" ] && { echo "$root"; exit 0; }
for tool in apt-get dpkg-deb; do
  command -v $tool >/dev/null || { echo "$tool is missing: Mesa of $release cannot be unpacked here" >&2; exit 3; }
done

echo "unpacking Mesa of Debian $release into $root" >&2
new=$root.new
rm -rf "$new" "$root"
mkdir -p "$new"/apt/{lists,cache}/partial "$new"/apt/{parts,preferences} "$new/debs"
for suite in "${suites[@]}"; do
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main"
done >"$new/apt/sources.list"
: >"$new/apt/status"
apt=(apt-get -qq -o Dir::Etc::SourceList="$new/apt/sources.list" -o Dir::Etc::SourceParts="$new/apt/parts"
  -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts="$new/apt/preferences"
  -o Dir::State::Lists="$new/apt/lists" -o Dir::State::Status="$new/apt/status" -o Dir::Cache="$new/apt/cache"
  -o APT::Install-Recommends=false -o APT::Get::List-Cleanup=false -o Debug::NoLocking=true -o APT::Sandbox::User="$(id -un)")
"${apt[@]}" update >&2 || { echo "cannot read the package lists of Debian $release" >&2; exit 3; }
if [ $depends = yes ]; then
  # An empty list of installed packages makes apt-get name everything that the drivers need.
  "${apt[@]}" install --yes --download-only "${packages[@]}" >&2 || { echo "cannot download Mesa of Debian $release" >&2; exit 3; }
  mv "$new"/apt/cache/archives/*.deb "$new/debs" 2>/dev/null || mv "$new"/apt/cache/*.deb "$new/debs"
else
  (cd "$new/debs" && "${apt[@]}" download "${packages[@]}" >&2) || { echo "cannot download Mesa of Debian $release" >&2; exit 3; }
fi
# Unpacked with tar, because dpkg-deb would replace links that lead to folders, such as /lib.
mkdir -p "$new"/usr/{lib,bin,sbin,lib64}
for folder in lib bin sbin lib64; do ln -sfn usr/$folder "$new/$folder"; done
for deb in "$new"/debs/*.deb; do
  dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$new"
done
# The loader finds each driver by its absolute path.
for icd in "$new"/usr/share/vulkan/icd.d/*.json; do
  library=$(grep -o '"library_path": *"[^"]*"' "$icd" | sed 's/.*"\([^"]*\)"$/\1/')
  sed -i "s|\"library_path\": *\"[^\"]*\"|\"library_path\": \"$root/usr/lib/$(uname -m)-linux-gnu/$(basename "$library")\"|" "$icd"
done
rm -rf "$new/apt" "$new/debs"
touch "$new/complete"
mv "$new" "$root"
echo "$root"
