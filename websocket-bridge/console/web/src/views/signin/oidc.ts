// Signs in at an OpenID Connect issuer, by authorization code with PKCE. Only what the return needs is stored, in this
// tab and until it is used: state, nonce and verifier, but no token.
import * as oauth from 'oauth4webapi';
import type { Token } from '../../api/session.ts';
import { root } from '../../urls.ts';

export interface OIDC {
  issuer: string;
  clientID: string;
  scopes: string[];
}

interface Pending {
  state: string;
  nonce: string;
  verifier: string;
  path: string;
}

const key = 'clusterpass-sign-in';
const timeout = 30_000;
const redirectURI = () => `${location.origin}${root}/`;

async function discover(config: OIDC): Promise<oauth.AuthorizationServer> {
  const issuer = new URL(config.issuer);
  const response = await oauth.discoveryRequest(issuer, { algorithm: 'oidc', signal: AbortSignal.timeout(timeout) });
  return oauth.processDiscoveryResponse(issuer, response);
}

// begin leaves the page for the issuer's.
export async function begin(config: OIDC): Promise<void> {
  const server = await discover(config);
  if (!server.authorization_endpoint) {
    throw new Error(`the issuer ${config.issuer} has no authorization endpoint`);
  }
  const pending: Pending = {
    state: oauth.generateRandomState(),
    nonce: oauth.generateRandomNonce(),
    verifier: oauth.generateRandomCodeVerifier(),
    path: location.pathname + location.search,
  };
  sessionStorage.setItem(key, JSON.stringify(pending));
  const url = new URL(server.authorization_endpoint);
  for (const [name, value] of Object.entries({
    client_id: config.clientID, redirect_uri: redirectURI(), response_type: 'code', scope: config.scopes.join(' '),
    state: pending.state, nonce: pending.nonce, code_challenge_method: 'S256',
    code_challenge: await oauth.calculatePKCECodeChallenge(pending.verifier),
  })) {
    url.searchParams.set(name, value);
  }
  location.assign(url);
}

// isReturn reports whether the URL of the page is the issuer's answer.
export function isReturn(url: URL): boolean {
  return url.searchParams.has('state') && (url.searchParams.has('code') || url.searchParams.has('error')) &&
    sessionStorage.getItem(key) !== null;
}

// complete exchanges the code in the URL for a token. path is the page from which begin was called.
export async function complete(config: OIDC, url: URL): Promise<{ token: Token; path: string }> {
  const pending = JSON.parse(sessionStorage.getItem(key) ?? '{}') as Pending;
  sessionStorage.removeItem(key);
  history.replaceState(null, '', `${root}/`); // the code must not be sent again
  const server = await discover(config);
  const client: oauth.Client = { client_id: config.clientID };
  const answer = oauth.validateAuthResponse(server, client, url, pending.state);
  const response = await oauth.authorizationCodeGrantRequest(
    server, client, oauth.None(), answer, redirectURI(), pending.verifier, { signal: AbortSignal.timeout(timeout) });
  const result = await oauth.processAuthorizationCodeResponse(server, client, response, {
    expectedNonce: pending.nonce, requireIdToken: true,
  });
  const path = pending.path.startsWith(`${root}/`) ? pending.path : `${root}/`;
  return { token: tokenOf(server, client, result), path };
}

const longestMargin = 60; // seconds before the end of a token in which it is renewed

// tokenOf returns the ID token, which the gateway verifies as Kubernetes does. Its life is measured by the clock of the
// issuer: that of this machine may be wrong.
function tokenOf(
  server: oauth.AuthorizationServer, client: oauth.Client, result: oauth.TokenEndpointResponse, previous?: string,
): Token {
  if (!result.id_token) {
    throw new Error('the issuer answers without an ID token; the scope openid may be missing');
  }
  const refreshToken = result.refresh_token ?? previous;
  const { iat = 0, exp = Infinity } = oauth.getValidatedIdTokenClaims(result) ?? {};
  const life = exp - iat;
  return {
    token: result.id_token,
    renewAt: Date.now() + 1000 * (life - Math.min(longestMargin, life / 2)),
    refresh: refreshToken === undefined ? undefined : async () => {
      const response = await oauth.refreshTokenGrantRequest(
        server, client, oauth.None(), refreshToken, { signal: AbortSignal.timeout(timeout) });
      try {
        const next = await oauth.processRefreshTokenResponse(server, client, response);
        return tokenOf(server, client, next, refreshToken);
      } catch (error) {
        if (response.status >= 500) {
          throw error;
        }
        return undefined;
      }
    },
  };
}
