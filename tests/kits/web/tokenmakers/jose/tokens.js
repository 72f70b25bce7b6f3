// Reads keys from stdin, prints tokens by name: of these keys, and of new ones with their JWKS.
import { readFileSync } from "node:fs";
import { SignJWT, exportJWK, generateKeyPair, importPKCS8 } from "jose";

const { secret, keys, right, subject, audience } = JSON.parse(readFileSync(0, "utf8"));

const sign = (alg, key, header = {}) =>
    new SignJWT({ oplog: right })
        .setProtectedHeader({ alg, ...header })
        .setSubject(subject)
        .setAudience(audience)
        .setIssuedAt()
        .setExpirationTime("10m")
        .sign(key);

const tokens = { HS256: await sign("HS256", new TextEncoder().encode(secret)) };
for (const [alg, pem] of Object.entries(keys)) {
    tokens[alg] = await sign(alg, await importPKCS8(pem, alg));
}

const jwks = { keys: [] };
for (const alg of Object.keys(keys)) {
    const { publicKey, privateKey } = await generateKeyPair(alg);
    const kid = `own ${alg}`;
    jwks.keys.push({ ...(await exportJWK(publicKey)), kid, alg, use: "sig" });
    tokens[`JWKS ${alg}`] = await sign(alg, privateKey, { kid, typ: "JWT" });
    tokens[`JWKS ${alg} without kid`] = await sign(alg, privateKey);
}
const own = crypto.getRandomValues(new Uint8Array(32));
jwks.keys.push({ ...(await exportJWK(own)), kid: "own HS256", alg: "HS256" });
tokens["JWKS HS256"] = await sign("HS256", own, { kid: "own HS256" });

console.log(JSON.stringify({ tokens, jwks }));
