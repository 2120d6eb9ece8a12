#!/bin/sh
# Install the servers of the tests that no wheel has: MariaDB, and Galera for clusters of it.
#
# The tests start servers of their own, on free ports, in folders that they remove.  They need the programs
# alone: the service that comes with Debian's package is neither started nor enabled here.
set -eu

packages="mariadb-server galera-4 rsync"

found() { PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v "$1" >/dev/null 2>&1; }

galera() {
    for library in /usr/lib/galera/libgalera_smm.so /usr/lib*/galera-4/libgalera_smm.so; do
        if [ -e "$library" ]; then return; fi
    done
    return 1
}

installed() { found mariadbd && found mariadb-install-db && found rsync && galera; }

if installed; then
    echo "services: MariaDB, Galera and rsync are installed"
    exit
fi
if ! found apt-get; then
    echo "services: MariaDB, Galera or rsync is missing, and there is no apt-get:" \
        "install mariadbd, mariadb-install-db, galera-4 and rsync by the package manager of this machine" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "services: MariaDB, Galera or rsync is missing, and only root can install them:" \
        "apt-get install --no-install-recommends $packages" >&2
    exit 1
fi

echo "services: installing $packages by apt-get; the service mariadb is not started"
# What a package asks before it starts its service: 101 forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
fi
had_mariadb=$(found mariadbd && echo yes || echo no)
export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet=2
# shellcheck disable=SC2086 # these are several words
apt-get install --quiet=2 --yes --no-install-recommends $packages >/dev/null
# Nor after the next boot, unless the machine had it before.
if [ "$had_mariadb" = no ] && found systemctl; then systemctl --quiet disable mariadb; fi
installed || { echo "services: apt-get succeeded, but not every program was found" >&2; exit 1; }
echo "services: installed"
