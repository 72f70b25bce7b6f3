<?php
// Addresses of agents.
declare(strict_types=1);

const DEFAULT_PORTS = ['http' => 80, 'https' => 443, 'udp' => 8042];

/** An address with the credentials for it. */
final class Address
{
    private function __construct(
        public readonly string $scheme,
        public readonly string $host, // an IPv6 address in brackets
        public readonly int $port,
        public readonly string $path,
        public readonly string $query,
        private readonly string $user,
        private readonly string $password,
    ) {
    }

    /** Null if it is no URL of one of these schemes. Credentials in the URL come before the password given. */
    public static function parse(string $url, array $schemes, string $password = ''): ?self
    {
        $parts = preg_match('/^[\x21-\x7e]+$/D', $url) ? parse_url($url) : false;
        if ($parts === false || ($parts['host'] ?? '') === '' || ($parts['port'] ?? 1) === 0) {
            return null;
        }
        $scheme = strtolower($parts['scheme'] ?? '');
        if (!in_array($scheme, $schemes, true)) {
            return null;
        }
        $named = isset($parts['user']) || isset($parts['pass']);
        return new self(
            $scheme,
            strtolower($parts['host']),
            $parts['port'] ?? DEFAULT_PORTS[$scheme],
            $parts['path'] ?? '/',
            $parts['query'] ?? '',
            rawurldecode($parts['user'] ?? ''),
            $named ? rawurldecode($parts['pass'] ?? '') : $password,
        );
    }

    /** The operations of the agent at this address, with these parameters besides its own. */
    public function ops(string $parameters): self
    {
        $path = rtrim($this->path, '/');
        $path .= str_ends_with($path, '/ops') ? '' : '/ops';
        $query = trim("$this->query&$parameters", '&');
        return new self($this->scheme, $this->host, $this->port, $path, $query, $this->user, $this->password);
    }

    /** The port is left out if it is the scheme's own. */
    public function authority(): string
    {
        return $this->port === DEFAULT_PORTS[$this->scheme] ? $this->host : "$this->host:$this->port";
    }

    public function origin(): string
    {
        return "$this->scheme://{$this->authority()}";
    }

    /** Without credentials and query. */
    public function shown(): string
    {
        return $this->origin() . $this->path;
    }

    public function target(): string
    {
        return $this->path . ($this->query === '' ? '' : "?$this->query");
    }

    /** The target of a redirect from here, null if it is none. */
    public function follow(string $location): ?self
    {
        $location = match (true) {
            preg_match('~^[a-z][a-z0-9+.-]*:~i', $location) === 1 => $location,
            str_starts_with($location, '//') => "$this->scheme:$location",
            str_starts_with($location, '/') => $this->origin() . $location,
            str_starts_with($location, '?') => $this->shown() . $location,
            default => $this->origin() . substr($this->path, 0, (int) strrpos($this->path, '/') + 1) . $location,
        };
        return self::parse($location, ['http', 'https']);
    }

    /** The header with the credentials, but only for a request to the same scheme, host and port. @return string[] */
    public function authorization(self $to): array
    {
        return "$this->user$this->password" === '' || $to->origin() !== $this->origin() ? []
            : ['Authorization: Basic ' . base64_encode("$this->user:$this->password")];
    }
}
