<?php

declare(strict_types=1);

namespace Oplog;

/** Address of an agent, with the credentials for it. */
final class Address
{
    private const DEFAULT_PORTS = ['http' => 80, 'https' => 443, 'udp' => 8042];

    private function __construct(
        public readonly string $scheme,
        public readonly string $host, // an IPv6 address in brackets
        public readonly int $port,
        public readonly string $path,
        public readonly string $query,
        private readonly string $user,
        private readonly string $password,
        public readonly Tokens $tokens, // instead of user and password
    ) {
    }

    /**
     * Return null unless the URL has one of these schemes and names a host. Credentials in the URL override $password. Throw
     * \InvalidArgumentException for both a token and a password.
     *
     * @param list<string> $schemes
     */
    public static function parse(
        string $url,
        array $schemes,
        string $password = '',
        Tokens $tokens = new Tokens(null),
    ): ?self {
        $parts = preg_match('/^[\x21-\x7e]+$/D', $url) ? parse_url($url) : false;
        if ($parts === false || ($parts['host'] ?? '') === '' || ($parts['port'] ?? 1) === 0) {
            return null;
        }
        $scheme = strtolower($parts['scheme'] ?? '');
        if (!in_array($scheme, $schemes, true)) {
            return null;
        }
        $named = isset($parts['user']) || isset($parts['pass']);
        if ($tokens->isGiven() && ($named || $password !== '')) {
            throw new \InvalidArgumentException('a token and a password exclude each other: give one of them');
        }
        return new self(
            $scheme,
            strtolower($parts['host']),
            $parts['port'] ?? self::DEFAULT_PORTS[$scheme],
            self::withoutDots($parts['path'] ?? '/'),
            $parts['query'] ?? '',
            rawurldecode($parts['user'] ?? ''),
            $named ? rawurldecode($parts['pass'] ?? '') : $password,
            $tokens,
        );
    }

    /** Return the path without the segments "." and "..". */
    private static function withoutDots(string $path): string
    {
        $segments = [];
        foreach (explode('/', substr($path, 1)) as $segment) {
            if ($segment === '..') {
                array_pop($segments);
            } elseif ($segment !== '.') {
                $segments[] = $segment;
            }
        }
        $is_folder = preg_match('~/\.{0,2}$~D', $path) && end($segments) !== '';
        return '/' . implode('/', $segments) . ($is_folder && $segments !== [] ? '/' : '');
    }

    /** Return the address of the operations of this agent. The parameters are added to its own. */
    public function ops(string $parameters): self
    {
        $path = rtrim($this->path, '/');
        $path .= str_ends_with($path, '/ops') ? '' : '/ops';
        $query = trim("$this->query&$parameters", '&');
        return new self(
            $this->scheme,
            $this->host,
            $this->port,
            $path,
            $query,
            $this->user,
            $this->password,
            $this->tokens,
        );
    }

    /** Return host and port. Leave out the default port of the scheme. */
    public function authority(): string
    {
        return $this->port === self::DEFAULT_PORTS[$this->scheme] ? $this->host : "$this->host:$this->port";
    }

    public function origin(): string
    {
        return "$this->scheme://{$this->authority()}";
    }

    /** Return the address without credentials and query. */
    public function shown(): string
    {
        return $this->origin() . $this->path;
    }

    public function target(): string
    {
        return $this->path . ($this->query === '' ? '' : "?$this->query");
    }

    /** Return the target of a redirect from here, or null if the header is not an HTTP address. */
    public function follow(string $location): ?self
    {
        // Like browsers: drop the fragment, escape bytes that a URL may not hold, resolve dots in the path.
        $location = explode('#', $location, 2)[0];
        $location = preg_replace_callback('/[^\x21-\x7e]/', fn (array $byte): string => rawurlencode($byte[0]), $location);
        if ($location === '') {
            return null;
        }
        $location = match (true) {
            preg_match('~^[a-z][a-z0-9+.-]*:~i', $location) === 1 => $location,
            str_starts_with($location, '//') => "$this->scheme:$location",
            str_starts_with($location, '/') => $this->origin() . $location,
            str_starts_with($location, '?') => $this->shown() . $location,
            default => $this->origin() . substr($this->path, 0, (int) strrpos($this->path, '/') + 1) . $location,
        };
        return self::parse($location, ['http', 'https']);
    }

    /**
     * Return the header with the credentials, but only if $to has the same scheme, host and port. $token: from $tokens.
     *
     * @return list<string>
     */
    public function authorization(self $to, string $token): array
    {
        return match (true) {
            $to->origin() !== $this->origin() => [],
            $token !== '' => ["Authorization: Bearer $token"],
            "$this->user$this->password" === '' => [],
            default => ['Authorization: Basic ' . base64_encode("$this->user:$this->password")],
        };
    }
}
