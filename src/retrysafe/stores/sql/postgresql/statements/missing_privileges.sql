-- Rights that services and operators need and that this role does not have.
-- Columns: table or sequence, right
SELECT name, needed
FROM unnest(
    ARRAY[
        'retrysafe_records', 'retrysafe_records', 'retrysafe_records', 'retrysafe_records', 'retrysafe_meta',
        'retrysafe_audit', 'retrysafe_audit', 'retrysafe_audit',
        'retrysafe_verdicts', 'retrysafe_verdicts', 'retrysafe_verdicts'
    ],
    ARRAY[
        'SELECT', 'INSERT', 'UPDATE', 'DELETE', 'SELECT',
        'SELECT', 'INSERT', 'UPDATE',
        'SELECT', 'INSERT', 'UPDATE'
    ]
) AS rights (name, needed)
WHERE NOT has_table_privilege(to_regclass(name), needed)
UNION ALL
SELECT sequence, 'USAGE'
FROM pg_get_serial_sequence('retrysafe_audit', 'entry') AS sequence
WHERE NOT has_sequence_privilege(sequence, 'USAGE')
