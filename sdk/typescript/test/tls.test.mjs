// What the client says of a server whose certificate it does not take.

import assert from "node:assert/strict";
import { createServer } from "node:https";
import { describe, it } from "node:test";

import { SandboxClient, Unavailable } from "../dist/index.js";

// Both certificates are for localhost and signed with this key, which serves for nothing else.
const key = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgA8Xe94KF+RVRZZQS
TDW65FmmG0tOCKD6aAzguzMfPFqhRANCAAS76/0acbfug1gxAXVD+Eh9IKDgdAsP
hv9v+sliBXFUtoI3lC1yJ14yJlBgHBgLXCGDgd7YcoNMeLlnDqTVWJ0t
-----END PRIVATE KEY-----`;
const good = `-----BEGIN CERTIFICATE-----
MIIBcDCCARegAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDEwlsb2NhbGhv
c3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMT
CWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABLvr/Rpxt+6DWDEB
dUP4SH0goOB0Cw+G/2/6yWIFcVS2gjeULXInXjImUGAcGAtcIYOB3thyg0x4uWcO
pNVYnS2jWDBWMA4GA1UdDwEB/wQEAwIChDAPBgNVHRMBAf8EBTADAQH/MB0GA1Ud
DgQWBBQguH90xP6wd+oVuvFSQmwal8NcgzAUBgNVHREEDTALgglsb2NhbGhvc3Qw
CgYIKoZIzj0EAwIDRwAwRAIgD9o6R1Mi9Ke1BgMr2t9UWzTk9UhSrZpD0gQ2POjT
I3ECIAvj4Rq8SABf5cPY1WnDPksMqDohxbwdT+8VzgaN/mi8
-----END CERTIFICATE-----`;
const expired = `-----BEGIN CERTIFICATE-----
MIIBcDCCARWgAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDEwlsb2NhbGhv
c3QwHhcNMjAwMTAxMDAwMDAwWhcNMjEwMTAxMDAwMDAwWjAUMRIwEAYDVQQDEwls
b2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAS76/0acbfug1gxAXVD
+Eh9IKDgdAsPhv9v+sliBXFUtoI3lC1yJ14yJlBgHBgLXCGDgd7YcoNMeLlnDqTV
WJ0to1gwVjAOBgNVHQ8BAf8EBAMCAoQwDwYDVR0TAQH/BAUwAwEB/zAdBgNVHQ4E
FgQUILh/dMT+sHfqFbrxUkJsGpfDXIMwFAYDVR0RBA0wC4IJbG9jYWxob3N0MAoG
CCqGSM49BAMCA0kAMEYCIQDDVRevHgn67fryDf7j6sc3R9pwFeaDG/8NNqHYFGvo
aAIhAJJpvX2m7o2BYQykU+urATdNC1x/gLZOWX3EQDcrmdmA
-----END CERTIFICATE-----`;

describe("a certificate that is not trusted", () => {
  for (const [what, cert, host, tls, cause] of [
    ["its authority is unknown", good, "localhost", {}, "DEPTH_ZERO_SELF_SIGNED_CERT"],
    ["it has expired", expired, "localhost", { ca: expired }, "CERT_HAS_EXPIRED"],
    ["it is for another name", good, "127.0.0.1", { ca: good }, "ERR_TLS_CERT_ALTNAME_INVALID"],
  ]) {
    it(`is named: ${what}`, async () => {
      const server = createServer({ key, cert }, (_, response) => response.setHeader("Content-Type", "application/json").end("{}"));
      await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
      const address = `https://${host}:${server.address().port}`;
      const client = await SandboxClient.connect({ address, tls: { family: 4, ...tls } });
      const taken = await SandboxClient.connect({ address, tls: { family: 4, rejectUnauthorized: false } });
      try {
        await assert.rejects(client.server(), (error) => {
          assert.ok(error instanceof Unavailable);
          assert.equal(error.reason, "certificate_not_trusted");
          assert.equal(error.retryable, false);
          assert.match(error.message, new RegExp(`not trusted: .*\\(${cause}\\)`));
          return true;
        });
        await taken.server(); // it is the certificate, and nothing else
      } finally {
        client.close();
        taken.close();
        server.close();
      }
    });
  }
});
