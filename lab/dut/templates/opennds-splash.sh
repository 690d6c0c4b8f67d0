#!/bin/sh
# Splash page of the lab's openNDS: one form that asks to continue. openNDS runs
# it with the URL-encoded query string of the request as $1. The query carries
# the client's hashed id in base64; the token that opens the gateway is the hash
# of that id and the key shared with openNDS (documented as FAS level 1).
fas=${1#*fas%3[dD]}
fas=${fas%%%2[cC]*}
fas=$(printf '%s' "$fas" | sed 's/%3[dD]/=/g; s/%2[bB]/+/g; s/%2[fF]/\//g' | base64 -d 2>/dev/null)
hid=${fas#*hid=}
hid=${hid%%,*}
origin=${fas#*originurl=}
origin=$(printf '%s' "${origin%%,*}" | sed 's/%3[aA]/:/g; s/%2[fF]/\//g')
case $hid in '' | *[!0-9a-f]*) exit 1 ;; esac
case $origin in '' | *[!A-Za-z0-9:/._~-]*) origin=http://status.client/ ;; esac
tok=$(printf '%s%s' "$hid" '{{.Secret}}' | sha256sum)
cat <<PAGE
<!DOCTYPE html>
<html><head><title>Gateweigh</title></head><body>
<h1>Welcome</h1>
<form action="/opennds_auth/" method="get">
<input type="hidden" name="tok" value="${tok%% *}">
<input type="hidden" name="redir" value="$origin">
<input type="submit" value="Continue">
</form>
</body></html>
PAGE
