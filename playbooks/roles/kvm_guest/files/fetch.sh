#!/bin/sh
# Usage: fetch.sh URL SHA256 FOLDER FILE… — fetch these files of an image: URL/SHA256SUMS lists their digests, and has
# the digest SHA256 itself. A file that is there stays. One that came in part goes on where it ended, and gets its name
# once it is whole. Prints the names of what it fetched.
set -eu
url=${1%/} sums=$2 folder=$3
shift 3
mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9 # another that fetches the same image

is_whole() { echo "$2  $1" | sha256sum --check --status 2>/dev/null; }

# Fetch the rest of a file, again where the connection broke; the exit code is curl's, and `said` its message.
rest_of() {
    tries=0
    while :; do
        code=0
        said=$(curl --fail --location --silent --show-error --connect-timeout 20 --speed-limit 1 --speed-time 60 \
            --continue-at - --output "$part" "$url/$1" 2>&1) || code=$?
        tries=$((tries + 1))
        case $code in
        5 | 6 | 7 | 18 | 28 | 35 | 52 | 55 | 56 | 92) [ "$tries" -lt 4 ] || return "$code" ;;
        *) return "$code" ;;
        esac
        sleep "$tries"
    done
}

# Fetch a file of this name and digest. What is left of another content is dropped, and all of it fetched again.
fetch() {
    part=$folder/.$1.part
    [ ! -e "$folder/$1" ] || return 0
    for attempt in 1 2; do
        begun=$([ -s "$part" ] && echo yes || echo no)
        if ! is_whole "$part" "$2"; then
            code=0
            rest_of "$1" || code=$?
            case $code:$begun:$attempt in
            0:*) ;;
            22:yes:1 | 33:yes:1) # no such range, or no ranges at all
                rm -f "$part"
                continue
                ;;
            *)
                echo "$url/$1: $said" >&2
                exit 1
                ;;
            esac
        fi
        if is_whole "$part" "$2"; then
            chmod 0644 "$part"
            sync "$part"
            mv "$part" "$folder/$1"
            echo "$1"
            return 0
        fi
        is=$(sha256sum "$part" | cut -d ' ' -f 1)
        rm -f "$part"
        [ "$begun" = yes ] || break
    done
    echo "$url/$1: its SHA-256 is $is, not $2; is it of another image?" >&2
    exit 1
}

fetch SHA256SUMS "$sums"
for file; do
    digest=$(awk -v name="$file" '$2 == name || $2 == "*" name { print $1 }' "$folder/SHA256SUMS")
    if [ -z "$digest" ]; then
        case $file in *-*) kernel=" --kernel ${file#*-}" ;; *) kernel= ;; esac
        echo "$url/SHA256SUMS: it has no $file; make the image with \`vmtoll lab image --output$kernel\`" >&2
        exit 1
    fi
    fetch "$file" "$digest"
done
