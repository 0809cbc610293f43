#!/bin/sh
# make.sh DEB OUT: an OCI image (an archive) of a Debian package, built without root's daemons.
#
# The base is made from the package registry; SOURCE_DATE_EPOCH is every time in the image. Needs
# mmdebstrap, buildah and root. Any other builder takes the directory build/image as well.
set -eu
here=$(dirname "$0")
context=build/image
rm -rf "$context" && mkdir -p "$context/store"
cp "$here/Containerfile" "$context/"
cp "$1" "$context/fabmon.deb"
suite=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
mmdebstrap --quiet --variant=minbase \
    --include=python3,adduser,zlib1g,libstdc++6,openssh-client,ca-certificates \
    "$suite" "$context/base.tar"
buildah() {
    command buildah --storage-driver vfs --root "$PWD/$context/store" --runroot "$PWD/$context/run" "$@"
}
buildah build --quiet --isolation chroot --layers=false --timestamp "$SOURCE_DATE_EPOCH" \
    --tag fabmon "$context"
buildah push --quiet fabmon "oci:$context/oci:fabmon"
tar --create --file "$2" --directory "$context/oci" --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
    --owner=0 --group=0 --numeric-owner .
echo "$2"
